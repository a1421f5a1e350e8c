"""A function runs as soon as a module has been imported, and nobody else notices."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from verl_agentic.verl import import_hooks
from verl_agentic.verl.import_hooks import when_imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package `hooked`, whose module `leaf` is imported by `user`."""
    package = tmp_path / "hooked"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "leaf.py").write_text("value = 'original'\n")
    (package / "user.py").write_text("from hooked.leaf import value\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield package
    sys.meta_path[:] = finders
    import_hooks._pending.clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "hooked"]:
        del sys.modules[name]


def _import(name: str) -> Any:
    return importlib.import_module(name)


def test_the_function_runs_after_the_module_and_before_its_importer(folder: Path) -> None:
    def change() -> None:
        _import("hooked.leaf").value += " changed"

    when_imported("hooked.leaf", change)
    assert "hooked.leaf" not in sys.modules
    assert _import("hooked.user").value == "original changed"


def test_functions_run_once_in_the_order_they_were_given(folder: Path) -> None:
    calls: list[int] = []
    for number in range(3):
        when_imported("hooked.leaf", lambda number=number: calls.append(number))
    _import("hooked.leaf")
    assert calls == [0, 1, 2]
    importlib.reload(_import("hooked.leaf"))
    assert calls == [0, 1, 2]


def test_a_module_that_is_there_already_runs_the_function_at_once(folder: Path) -> None:
    _import("hooked.leaf")
    calls: list[str] = []
    when_imported("hooked.leaf", lambda: calls.append("now"))
    assert calls == ["now"]


def test_a_function_that_asks_for_its_own_module_again_is_served(folder: Path) -> None:
    calls: list[str] = []
    when_imported("hooked.leaf", lambda: when_imported("hooked.leaf", lambda: calls.append("again")))
    _import("hooked.leaf")
    assert calls == ["again"]


def test_a_module_that_fails_keeps_its_functions_for_the_next_try(folder: Path) -> None:
    calls: list[str] = []
    (folder / "leaf.py").write_text("raise OSError('not yet')\n")
    when_imported("hooked.leaf", lambda: calls.append("now"))
    with pytest.raises(OSError, match="not yet"):
        _import("hooked.leaf")
    assert calls == []
    (folder / "leaf.py").write_text("value = 'longer than before'\n")
    importlib.invalidate_caches()
    _import("hooked.leaf")
    assert calls == ["now"]


def test_the_module_looks_as_without_the_hook(folder: Path) -> None:
    when_imported("hooked.leaf", lambda: None)
    module = _import("hooked.leaf")
    assert isinstance(module.__loader__, importlib.machinery.SourceFileLoader)
    assert module.__spec__.loader is module.__loader__
    assert "original" in inspect.getsource(module)


def test_a_module_that_is_waited_for_can_be_looked_up_and_run(folder: Path) -> None:
    calls: list[str] = []
    when_imported("hooked.leaf", lambda: calls.append("now"))
    spec = importlib.util.find_spec("hooked.leaf")
    assert spec is not None and spec.origin == str(folder / "leaf.py")
    assert runpy.run_module("hooked.leaf")["value"] == "original"
    assert importlib.util.find_spec("hooked.nothing") is None


def test_another_import_hook_on_the_same_module_works_too(folder: Path) -> None:
    calls: list[str] = []

    class Foreign(importlib.machinery.PathFinder):
        """Also wraps loaders; asks the finders behind it, and us."""

        searching = False

        @classmethod
        def find_spec(cls, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
            if fullname != "hooked.leaf" or cls.searching:
                return None
            cls.searching = True
            spec = importlib.util.find_spec(fullname)
            cls.searching = False
            assert spec is not None and spec.loader is not None
            calls.append("foreign")
            return spec

    when_imported("hooked.leaf", lambda: calls.append("ours"))
    sys.meta_path.insert(1, Foreign)  # type: ignore[arg-type]
    _import("hooked.leaf")
    assert calls == ["foreign", "ours"]
