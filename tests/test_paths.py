"""Paths of environments and recipes, in a checkout and in an installed wheel."""

from __future__ import annotations

import ast
import os
import tempfile
from pathlib import Path

import pytest

from verl_agentic.base import paths
from verl_agentic.base.errors import ConfigError


def test_bundled_environments_and_recipes_are_found() -> None:
    assert (paths.envs_dir() / "python_math" / "__init__.py").is_file()
    assert paths.recipe_file("quickstart", "grpo.yaml").read_text().startswith("#")


@pytest.mark.skipif(paths.envs_dir().parent.name != "_bundled", reason="this is a checkout")
def test_the_wheel_has_no_tests_of_environments() -> None:
    assert not list(paths.envs_dir().rglob("test_*.py"))


def test_a_missing_recipe_is_answered_with_those_that_have_the_file() -> None:
    with pytest.raises(ConfigError, match=r"course\.yaml") as caught:
        paths.recipe_file("nope", "course.yaml")
    names = str(caught.value).split("recipes with one: ")[1]
    assert all((paths.recipes_dir() / name / "course.yaml").is_file() for name in ast.literal_eval(names))


def test_a_private_folder_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = paths.private_folder("x")
    assert made.stat().st_mode & 0o777 == 0o700 and paths.private_folder("x") == made
    uid = os.getuid()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"verl_agentic-link-{uid}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"verl_agentic-file-{uid}").touch(mode=0o600)
    (tmp_path / f"verl_agentic-open-{uid}").mkdir()
    (tmp_path / f"verl_agentic-open-{uid}").chmod(0o777)
    (tmp_path / f"verl_agentic-other-{uid + 1}").mkdir(mode=0o700)
    for purpose in ("link", "open", "file"):
        with pytest.raises(ConfigError, match="must be our own"):
            paths.private_folder(purpose)
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(ConfigError, match="must be our own"):
        paths.private_folder("other")


@pytest.mark.parametrize(
    ("files", "root"),
    [
        (("pyproject.toml", "envs/a/__init__.py"), "."),
        (("pyproject.toml",), "verl_agentic/_bundled"),  # site-packages of somebody who has a stray pyproject there
        (("envs/a/__init__.py",), "verl_agentic/_bundled"),
    ],
)
def test_a_checkout_is_told_from_an_installed_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...], root: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "verl_agentic")
    assert paths.envs_dir() == tmp_path / root / "envs"
    assert paths.recipes_dir() == tmp_path / root / "recipes"
