"""The place of an exception: the innermost frame in the user's files, whatever lies above and below it."""

from __future__ import annotations

import functools
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.deadlines import within
from verl_agentic.base.errors import ConfigError, EnvError, boundary
from verl_agentic.base.places.error_places import describe_cause, locate_error, locate_trace
from verl_agentic.base.registry import import_file, import_place, load_address
from verl_agentic.base.text.grouped_lines import group_lines

SOURCE = """\
import json


def build(call, *arguments):
    return call(*arguments)


def read():
    return json.loads("{")
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Returns a function path -> the module with `SOURCE` there; the working folder is `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    def load_module(name: str) -> Any:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
        return import_file(path, name=f"places_{path}")

    return load_module


def raised_by(function: Callable[..., Any], *arguments: Any) -> Exception:
    with pytest.raises((ValueError, KeyError)) as caught:
        function(*arguments)
    return caught.value


def test_code_of_the_standard_library_and_of_this_package_below_the_user_is_not_the_place(
    load: Callable[[str], Any],
) -> None:
    mine = load("my_env/tasks.py")
    assert locate_error(raised_by(mine.read)) == "my_env/tasks.py:9 in read"
    error = raised_by(mine.build, functools.partial(load_address, what="it"), "nowhere.py:f")  # raised in this package
    assert locate_error(error) == "my_env/tasks.py:5 in build"


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_an_installed_package_that_the_user_calls_and_that_calls_the_user_is_not_the_place(
    load: Callable[[str], Any], folder: str
) -> None:
    mine, installed = load("mine.py"), load(f"{folder}/installed.py")
    assert locate_error(raised_by(mine.build, installed.read)) == "mine.py:5 in build"
    assert locate_error(raised_by(installed.build, mine.read)) == "mine.py:9 in read"


def test_a_path_outside_of_the_working_folder_is_absolute(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = load("mine.py")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert locate_error(raised_by(mine.read)) == f"{tmp_path}/mine.py:9 in read"


async def test_an_exception_without_a_frame_of_the_user_has_the_place_of_its_cause(load: Callable[[str], Any]) -> None:
    mine = load("mine.py")

    async def leave() -> None:
        mine.build(exit, 3)

    with pytest.raises(RuntimeError) as caught:
        await within(leave(), 5.0, what="leaving")  # wraps a SystemExit
    caught.value.__traceback__ = None
    assert locate_error(caught.value) == "mine.py:5 in build"
    several = RuntimeError("several")
    several.exceptions = [raised_by(mine.read)]  # type: ignore[attr-defined]  # as an ExceptionGroup has
    assert locate_error(several) == "mine.py:9 in read"


def test_an_error_of_syntax_has_the_place_of_its_text(load: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("a = 1\nb = = 2\n")
    with pytest.raises(ConfigError, match=r"broken\.py:2"):
        import_place("broken.py", "thing")


def test_code_without_a_frame_of_the_user_has_no_place() -> None:
    error = raised_by(json.loads, "{")
    error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]  # without the frame of this test
    assert locate_error(error) == "" and describe_cause(error).startswith("JSONDecodeError: ")
    assert not describe_cause(error).endswith("in loads)")


def test_a_traceback_as_text_has_the_same_place(load: Callable[[str], Any]) -> None:
    error = raised_by(load("mine.py").read)
    text = "".join(traceback.format_exception(error))
    assert locate_trace(text) == locate_error(error) == "mine.py:9 in read" and locate_trace("") == ""


def test_a_boundary_adds_the_place_to_foreign_exceptions_and_leaves_our_own_errors(load: Callable[[str], Any]) -> None:
    mine = load("mine.py")
    message = r"starting failed, got JSONDecodeError: .* \(mine.py:9 in read\)$"
    with pytest.raises(EnvError, match=message), boundary(EnvError, "starting"):
        mine.read()
    with pytest.raises(ConfigError, match=r"^no disk$"), boundary(EnvError, "starting"):
        raise ConfigError("no disk")


def test_equal_texts_are_one_line_with_their_number() -> None:
    messages = [("row 0", "gone"), ("row 1", "late"), ("row 2", "gone"), ("", "odd"), ("", "no"), ("", "no")]
    assert group_lines(messages) == ["2 x gone; first in row 0", "row 1: late", "odd", "2 x no"]
