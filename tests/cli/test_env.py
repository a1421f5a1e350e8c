"""`verl-agentic env`: every bundled environment validates, a new one does from the start, flaws give exit code 1."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.places.installed_envs import GROUP
from verl_agentic.cli import main
from verl_agentic.episode.env_package import known_envs, load_env_package
from verl_agentic.log.files.rows import write_rows

# 140 episodes whose repository is graded take minutes; `test_swe_recipes.py` and the tests of `grade` do that. Each
# solution is graded five times, so one row of `swe` is enough.
CONFIG = {"swe_edit": ("--config", "reward=similarity")}
ONE_ROW = ("swe",)
LONG = ("bfcl", "function_calling", "gymnasium", "harness", "minigrid", "repo_search", "support_desk", "swe")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def marks_of(env_id: str) -> tuple[Any, ...]:
    """Validation of some environments takes minutes; each of them has fast tests of its own."""
    if env_id in LONG:
        return (pytest.mark.nightly,)
    return () if env_id == "python_math" else (pytest.mark.slow,)


@pytest.mark.sample(6, slow=6)
@pytest.mark.parametrize("env_id", [pytest.param(env_id, marks=marks_of(env_id)) for env_id in known_envs()])
def test_every_bundled_environment_validates(env_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = load_env_package(env_id)
    if package.gold is None or (package.card is not None and package.card.kind == "servers"):
        pytest.skip("needs data or a server of the user's, and has tests of its own")
    if env_id == "miniwob" and not any(map(shutil.which, BROWSERS)):
        pytest.skip(f"none of {BROWSERS} is on this machine")
    options = list(CONFIG.get(env_id, ()))
    if env_id in ONE_ROW:
        assert package.make_rows is not None
        write_rows(package.make_rows(split="train", count=1, seed=0), tmp_path / "rows.jsonl")
        options = ["--rows", str(tmp_path / "rows.jsonl")]
    code = main(["env", "validate", env_id, "--count", "1", "--json", *options])
    said = capsys.readouterr()
    if "MissingDependencyError" in said.err:
        pytest.skip(said.err.strip())
    found = json.loads(said.out)
    assert (code, found["ok"]) == (0, True), [check for check in found["checks"] if not check["ok"]]
    assert (found["env"], found["protocol"]) == (env_id, "chat") and found["rows"] >= (1 if env_id in ONE_ROW else 4)


@pytest.mark.sample(1, slow=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "protocol"),
    [("python_math", "retool"), ("search_qa", "search_r1"), ("search_qa", "research"), ("text_game", "ragen"),
     ("text_game", "json_action")],
)  # fmt: skip
def test_environments_validate_in_the_protocols_that_have_their_tools(
    env_id: str, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["env", "validate", env_id, "--count", "1", "--protocol", protocol, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["protocol"]) == (0, protocol), [check for check in found["checks"] if not check["ok"]]


def test_a_protocol_that_does_not_fit_is_wrong_use_and_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "validate", "python_math", "--protocol", "search_r1"]) == 2
    assert "ConfigError: protocol 'search_r1'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_new_environment_validates_and_its_own_test_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "new", "corner_shop", "--dir", str(tmp_path)]) == 0
    folder = tmp_path / "corner_shop"
    shown = capsys.readouterr().out
    assert f"now run: verl-agentic env validate {folder}" in shown
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files == {
        "__init__.py", "env.py", "rows.py", "gold.py", "README.md", "test_env.py", "example.jsonl",
    }  # fmt: skip
    text = "".join(path.read_text() for path in folder.iterdir() if path.is_file())
    assert "my_env" not in text and "MyEnv" not in text and "class CornerShopEnv(ToolEnv)" in text
    assert len((folder / "env.py").read_text().splitlines()) <= 75
    assert main(["env", "validate", str(folder), "--count", "2"]) == 0
    table = capsys.readouterr().out
    assert "gold scores 1" in table and "FAIL" not in table and "start" in table
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "wrong_call", str(folder)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == 0 and "3 passed" in process.stdout, process.stdout


def test_a_new_package_has_the_environment_as_its_entry_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["env", "new", "corner_kiosk", "--package"]) == 0
    shown = capsys.readouterr().out
    assert "pip install -e ./corner_kiosk, " in shown and "env validate ./corner_kiosk/corner_kiosk\n" in shown
    project = tmp_path / "corner_kiosk"
    assert {path.name for path in project.iterdir()} == {"pyproject.toml", "README.md", "corner_kiosk"}
    assert "env validate corner_kiosk\n" in (project / "README.md").read_text()
    entry_points = f'[project.entry-points."{GROUP}"]\ncorner_kiosk = "corner_kiosk"  #'
    assert entry_points in (project / "pyproject.toml").read_text()
    package = load_env_package(str(project / "corner_kiosk"))
    assert package.gold is not None and (package.folder / "example.jsonl").is_file()
    assert main(["env", "new", "python_math", "--package"]) == 2
    assert "bundled one, got 'python_math'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_broken_environment_is_told_with_row_and_reason_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["env", "new", "broken", "--dir", str(tmp_path)])
    source = tmp_path / "broken" / "env.py"
    source.write_text(source.read_text().replace("float(is_right and ", "float(not is_right or "))
    for name in [name for name in sys.modules if name.startswith("verl_agentic_env_broken")]:
        monkeypatch.delitem(sys.modules, name)  # a user's next command is another process
    capsys.readouterr()
    assert main(["env", "validate", str(tmp_path / "broken"), "--count", "1"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"null scores 0 FAIL \d x scored 1, stopped by answered; first in row 0 \(train-", shown), shown
    rows = tmp_path / "one.jsonl"
    rows.write_text((tmp_path / "broken" / "example.jsonl").read_text().split("\n")[0] + "\n")
    assert main(["env", "validate", str(tmp_path / "broken"), "--rows", str(rows), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rows"] == 1


def test_an_exception_at_import_has_its_place_and_the_option_shows_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("from .tasks import build\nbuild({})\n")
    (tmp_path / "mine" / "tasks.py").write_text("def build(tasks):\n    return tasks['missing']\n")
    for command in (["env", "validate"], ["prepare"], ["env", "play"]):
        assert main([*command, "./mine"]) == 2
        error = capsys.readouterr().err
        assert "got KeyError: 'missing' (mine/tasks.py:2 in build)\n" in error and "Traceback" not in error
        assert error.endswith("--traceback shows the whole traceback\n")
        assert main([*command, "./mine", "--traceback"]) == 2
        assert "Traceback (most recent call last)" in (error := capsys.readouterr().err)
        assert "return tasks['missing']" in error


@pytest.mark.slow
def test_a_failure_in_every_episode_has_its_place_and_the_option_prints_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["env", "new", "tried", "--dir", str(tmp_path)])
    source = tmp_path / "tried" / "env.py"
    source.write_text(source.read_text().replace("is_answer =", "self.tries\n        is_answer =", 1))
    for name in [name for name in sys.modules if name.startswith("verl_agentic_env_tried")]:
        monkeypatch.delitem(sys.modules, name)  # a user's next command is another process
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["env", "validate", "./tried", "--count", "1", "--traceback"]) == 1
    shown, error = capsys.readouterr()
    assert "no attribute 'tries' (tried/env.py:" in " ".join(shown.split())
    assert "Traceback (most recent call last)" in error and "self.tries" in error
    assert error.startswith("rows: ok\n") and "\ngold scores 1: fail\n" in error


@pytest.mark.slow
def test_validation_imports_neither_verl_nor_torch_nor_transformers() -> None:
    script = (
        "import sys; from verl_agentic.cli import main; code = main(sys.argv[1:]); print(*sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", script, "env", "validate", "python_math", "--count", "1"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stdout
    imported = set(process.stdout.splitlines()[-1].split())
    assert "jinja2" in imported and not imported & {"verl", "torch", "transformers", "pandas", "pydantic"}


@pytest.mark.slow
def test_arguments_of_the_environment_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["env", "validate", "python_math", "--count", "1", "--json", "--config"]
    assert main([*arguments, "stateful=true"]) == 0
    assert main([*arguments, "sandbox=nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"), [("9lives", "Python identifier"), ("My_Env", "lower case"), ("taken", "the folder exists")]
)
def test_names_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    (tmp_path / "taken").mkdir()
    assert main(["env", "new", name, "--dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_list_has_every_environment_with_what_it_offers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["env", "list", "--json"]) == 0
    listed = {env["id"]: env for env in json.loads(capsys.readouterr().out)}
    assert {env["family"] for env in listed.values()} == set(known_envs())
    assert all(env["kind"] and env["size"] and env["licence"] and env["about"] for env in listed.values())
    math = listed["python_math"]
    assert (math["make_rows"], math["gold"], math["examples"]) == (True, True, 5) and "Multiplications" in math["about"]
    assert main(["env", "list"]) == 0
    assert "python_math" in capsys.readouterr().out
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "__init__.py").write_text("import nonsense_xyz\n")
    monkeypatch.setattr("verl_agentic.episode.env_package.envs_dir", lambda: tmp_path)
    assert main(["env", "list"]) == 1
    assert "nonsense_xyz" in " ".join(capsys.readouterr().out.split())


def test_the_skeleton_itself_is_an_environment() -> None:
    package = load_env_package("verl_agentic.evaluate.cli.env.skeleton")
    assert package.make_rows is not None and package.gold is not None
