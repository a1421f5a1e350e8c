"""Finds functions by address: a bundled name, `package.module:function`, or `path/file.py:function`.

Bundled functions of one kind lie in a package of their own, one a file, the file named like the function.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from verl_agentic.base.errors import AgenticError, ConfigError
from verl_agentic.base.places.error_places import describe_cause
from verl_agentic.base.settings import check_options, did_you_mean

T = TypeVar("T")
_FORMS = "package.module:function or path/file.py:function"


@dataclass(frozen=True, kw_only=True)
class BatchFunction:
    """A function of a batch, with options, that a decorator made."""

    what: ClassVar[str]
    """Names the kind in errors."""
    name: str
    function: Callable[..., Any]
    needs: frozenset[str]
    """Optional columns of the batch that the function requires."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises ConfigError for unknown or missing options; the message lists the known ones."""
        check_options(self.function, options, what=f"{self.what} {self.name!r}")

    def missing_columns(self, batch: Any, *, suffix: str = "") -> list[str]:
        """Returns the required columns that are None or an empty mapping in a batch."""
        columns = {name: getattr(batch, f"{name}{suffix}") for name in self.needs}
        return sorted(
            n for n, column in columns.items() if column is None or (isinstance(column, Mapping) and not column)
        )


@dataclass(frozen=True, kw_only=True)
class Registry(Generic[T]):
    """The functions of one kind: the bundled ones, and those of the user."""

    package: str
    """Holds the bundled functions."""
    extensions: tuple[str, ...] = ()
    """Packages of extensions with more of them. They are names, so that the core imports no extension."""
    what: str
    """Names the kind in errors."""
    kind: type[Any]
    """Class of what the decorator makes of a function."""
    decorator: str = ""
    """Empty where the functions are plain ones."""
    others: str = ""
    """Other values that the same option accepts, for errors."""

    def names(self) -> list[str]:
        """Returns the names of the bundled functions."""
        return sorted(self._find_packages())

    def has(self, address: str) -> bool:
        """Tells whether an address belongs to this registry: the name of a bundled function, or a function's place."""
        return ":" in address or address in self.names()

    def load(self, address: str) -> T:
        """Returns the function at an address.

        Raises:
            ConfigError: no such name, module, file or function, or one without the decorator.
        """
        function = load_address(address, what=self.what) if ":" in address else self._load_bundled(address)
        if not isinstance(function, self.kind):
            form = f"a function with the decorator @{self.decorator}" if self.decorator else "a function"
            raise ConfigError(
                f"the {self.what} {address!r} must be {form}, got {type(function).__name__}; name one, or decorate it"
            )
        return function

    def _load_bundled(self, name: str) -> Any:
        if name not in (names := self.names()):
            raise ConfigError(
                f"unknown {self.what} {name!r}; use one of {names}, {self.others}{_FORMS}{did_you_mean(name, names)}"
            )
        return getattr(importlib.import_module(f"{self._find_packages()[name]}.{name}"), name)

    def _find_packages(self) -> dict[str, str]:
        """Returns the package of each bundled function."""
        entries = [
            (entry.name, package) for package in (self.package, *self.extensions) for entry in files(package).iterdir()
        ]
        return {
            name.removesuffix(".py"): package for name, package in entries if name.endswith(".py") and name[0] != "_"
        }


def load_address(address: str, *, what: str) -> Any:
    """Returns what is at `package.module:name` or `path/file.py:name`.

    A relative path is looked up in the working folder, then in the folders of `sys.path`. So a worker of Ray finds the
    file as well: Ray puts the driver's working folder there.

    Args:
        address: as the user writes it.
        what: names it in errors.

    Raises:
        ConfigError: it cannot be imported, or the module has no such name.
    """
    place, _, name = address.rpartition(":")
    module = import_place(place, f"{what} {address!r}")
    if not hasattr(module, name):
        raise ConfigError(f"the {what} {address!r} is not there, got no {name!r} in {module.__file__}; give {_FORMS}")
    return getattr(module, name)


def import_place(place: str, what: str) -> ModuleType:
    """Returns the module `package.module`, or that of `path/file.py`; see `load_address`.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = _find_file(Path(place))
        return import_file(path, name=f"verl_agentic_file_{path}")
    except AgenticError:
        raise
    except (Exception, SystemExit) as cause:
        raise ConfigError(f"the {what} cannot be imported, got {describe_cause(cause)}; give {_FORMS}") from cause


def import_file(path: Path, *, name: str) -> ModuleType:
    """Returns the module of a file, the same one each time; an `__init__.py` is a package."""
    loaded_module = sys.modules.get(name)
    if loaded_module is not None and loaded_module.__file__ == str(path):
        return loaded_module
    for old in [other for other in list(sys.modules) if other.startswith(f"{name}.")]:
        del sys.modules[old]  # parts of another package of this name
    folders = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_file(path: Path) -> Path:
    folders = [Path(), *map(Path, sys.path)]
    for folder in folders:
        if (folder / path).is_file():
            return (folder / path).resolve()
    raise FileNotFoundError(f"no file {str(path)!r} in {str(Path.cwd())!r} or sys.path")
