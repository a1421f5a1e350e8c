"""Environments that other packages install: found by entry point, listed with their version, their code the user's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.places.error_places import locate_error
from verl_agentic.cli import main
from verl_agentic.episode.env_package import absolute_id, load_env_package

ROW = EnvRow(prompt=())
SOURCE = '''"""A vault to open."""
from verl_agentic.base.env_card import EnvCard
CARD = EnvCard(kind="games", size="3", tasks=("easy", "hard"))
def make_env(row):
    return row.extra["door"]
def make_rows(*, split, count, seed, task=None):
    return [task] * count
'''
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Returns a function that installs modules (path -> source) and their entry points, as pip does."""
    folder = tmp_path / "site-packages"

    def install_files(entry_points: str, /, **sources: str) -> Path:
        for name, source in sources.items():
            monkeypatch.delitem(sys.modules, name, raising=False)  # of an earlier test
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text(source)
        information = folder / "vault_env-0.2.0.dist-info"
        information.mkdir(parents=True, exist_ok=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: vault-env\nVersion: 0.2.0\n")
        (information / "entry_points.txt").write_text(f"[verl_agentic.environments]\n{entry_points}\n")
        monkeypatch.syspath_prepend(str(folder))
        return folder

    return install_files


@pytest.mark.parametrize("value", ["vault_of_tests", "vault_of_tests:make_env"])
def test_an_installed_environment_is_found_by_the_name_of_its_entry_point(install: Install, value: str) -> None:
    folder = install(f"vault = {value}", vault_of_tests=SOURCE)
    package = load_env_package("vault")
    assert (package.env_id, package.folder) == ("vault", folder / "vault_of_tests")
    one_task = load_env_package("vault/hard")
    assert one_task.make_rows is not None and one_task.make_rows(split="train", count=1, seed=0) == ["hard"]
    assert absolute_id("vault") == "vault" and absolute_id("vault/hard") == "vault/hard"


def test_a_folder_and_a_bundled_environment_come_before_an_installed_one(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("vault = vault_of_tests\npython_math = vault_of_tests", vault_of_tests=SOURCE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vault" / "mine").mkdir(parents=True)
    (tmp_path / "vault" / "mine" / "__init__.py").write_text("def make_env(row): ...")
    assert load_env_package("vault/mine").folder == tmp_path / "vault" / "mine"
    assert absolute_id("vault/mine") == str(tmp_path / "vault" / "mine")
    assert load_env_package("python_math").folder.parent.name == "envs"


def test_the_list_shows_installed_environments_with_package_and_version(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("vault = vault_of_tests\nbroken = missing_of_tests", vault_of_tests=SOURCE)
    assert main(["env", "list", "vault", "--json"]) == 0
    easy, hard = json.loads(capsys.readouterr().out)
    assert (easy["id"], hard["id"], easy["origin"]) == ("vault/easy", "vault/hard", "vault-env 0.2.0")
    assert easy["about"] == "A vault to open." and easy["make_rows"] and not easy["gold"]
    assert main(["env", "list", "broken"]) == 1
    monkeypatch.setattr("verl_agentic.episode.env_package.known_envs", lambda: ["python_math"])
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("LINES", "50")  # rich takes no width alone where the terminal is dumb
    capsys.readouterr()
    assert main(["env", "list"]) == 1
    shown = capsys.readouterr().out
    assert (
        "vault-env 0.2.0" in shown and "python_math" in shown and "broken: the environment" in " ".join(shown.split())
    )
    assert main(["env", "list", "vaults"]) == 2
    assert "did you mean 'vault'?" in capsys.readouterr().err


def test_an_error_of_an_installed_environment_has_its_place(install: Install) -> None:
    folder = install(
        "vault = vault_of_tests\nbad = bad_of_tests", vault_of_tests=SOURCE, bad_of_tests="{}['key']", other="{}['key']"
    )
    with pytest.raises(KeyError) as caught:
        load_env_package("vault").make_env(ROW)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # type: ignore[union-attr]  # without this test
    assert locate_error(caught.value) == f"{folder}/vault_of_tests/__init__.py:5 in make_env"
    with pytest.raises(ConfigError, match=r"'bad' .*KeyError: 'key' \(.*/bad_of_tests/__init__.py:1 in <module>\)"):
        load_env_package("bad")
    with pytest.raises(ConfigError) as foreign:
        load_env_package("other:make_env")
    assert "other/__init__.py" not in str(foreign.value), "a package without an entry point is not the user's"
