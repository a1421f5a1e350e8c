"""Wraps, replaces or adds an attribute of verl, and lists every such patch.

    @wrap(PPOTrainer, "_validate")
    def log_validation(validate, self):
        results = validate(self)
        ...

No other code of the adapters assigns an attribute of a class or a module of verl, and what they keep on its objects has
one attribute (`object_state`). Methods of single objects are changed only in processes of the plugin's own: by the
probes of a dry run, and in the clients of the offline trainers. Several patches of one symbol are applied in the order
in which their adapters are loaded (`features.all_adapters`): the last one is the outermost.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from packaging.specifiers import SpecifierSet

from verl_agentic.base.errors import PluginError

_PACKAGE = "verl_agentic.verl."
Kind = Literal["wrap", "replace", "add"]
_Wrapper = TypeVar("_Wrapper", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One changed attribute of verl."""

    symbol: str
    """`module:Class.attribute` or `module:attribute`."""
    adapter: str
    """Module below `verl_agentic.verl`."""
    kind: Kind
    order: int
    """Place among the patches of the symbol, from 1; the highest one is the outermost."""
    versions: str
    """Versions of verl that are patched; empty for all that the plugin supports."""


@dataclass(frozen=True, kw_only=True)
class MissingHook:
    """One attribute that this verl lacks, and that an adapter can do without."""

    symbol: str
    adapter: str
    versions: str
    """Versions of verl that have the attribute."""
    lost: str
    """What the user loses."""


_applied: list[tuple[Patch, Callable[[], None]]] = []
"""Every patch, and the function that takes it back."""
_missing: dict[str, MissingHook] = {}
"""Symbol and adapter -> hook."""


def patches() -> tuple[Patch, ...]:
    """Returns the patches of this process in the order in which they were applied."""
    return tuple(patch for patch, _ in _applied)


def missing_hooks() -> tuple[MissingHook, ...]:
    """Returns the attributes that were to be patched in other versions of verl only, and whose patch is a loss."""
    return tuple(_missing.values())


def undo_failed() -> None:
    """Takes back the patches of adapters whose import has just failed: what they call may not be defined."""
    for patch, undo in reversed(_applied[:]):
        if not {patch.adapter, _PACKAGE + patch.adapter} & sys.modules.keys():
            undo()
            _applied.remove((patch, undo))


def wrap(owner: Any, *names: str, versions: str = "", lost: str = "") -> Callable[[_Wrapper], _Wrapper]:
    """Puts the decorated function around attributes of a class or module of verl.

    The function is called with the original first, then with the arguments of the call: `self` of a method, the class
    of a class method. Around a coroutine function it must be one, too. Where callers may give any keyword, make the
    first parameter positional-only.

    Args:
        names: attributes that the function serves.
        versions: of verl, as a specifier; with others the attributes stay as they are. Empty for all.
        lost: what the user loses with others, for `verl-agentic doctor`. Empty if others need no patch.

    Raises:
        PluginError: verl has no such attribute.
    """
    adapter = _find_caller()

    def decorate(wrapper: _Wrapper) -> _Wrapper:
        for name in names:
            make = functools.partial(_make_wrapper, wrapper=wrapper)
            _apply_patch(owner, name, make, kind="wrap", adapter=adapter, versions=versions, lost=lost)
        return wrapper

    return decorate


def replace(owner: Any, name: str, value: Any, *, versions: str = "") -> None:
    """Puts a value in the place of an attribute; arguments and exceptions as for `wrap`."""
    _apply_patch(owner, name, lambda _: value, kind="replace", adapter=_find_caller(), versions=versions)


def add(owner: Any, name: str, value: Any, *, versions: str = "") -> None:
    """Adds an attribute; arguments as for `wrap`. Raises PluginError if verl has such an attribute already."""
    _apply_patch(owner, name, lambda _: value, kind="add", adapter=_find_caller(), versions=versions)


def _find_caller() -> str:
    return sys._getframe(2).f_globals["__name__"].removeprefix(_PACKAGE)


def _apply_patch(
    owner: Any, name: str, make: Callable[[Any], Any], *, kind: Kind, adapter: str, versions: str, lost: str = ""
) -> None:
    is_module = inspect.ismodule(owner)
    symbol = f"{owner.__name__}:{name}" if is_module else f"{owner.__module__}:{owner.__qualname__}.{name}"
    if versions and not SpecifierSet(versions).contains(_verl_version(), prereleases=True):
        if lost:
            _missing[f"{symbol} {adapter}"] = MissingHook(symbol=symbol, adapter=adapter, versions=versions, lost=lost)
        return
    missing = object()
    original = inspect.getattr_static(owner, name, missing)
    if (original is missing) != (kind == "add"):
        fault = "lacks the attribute" if original is missing else "already has the attribute"
        raise PluginError(
            f"verl {_verl_version()} {fault} that adapters.{adapter} must {kind}, got {symbol}; install a supported "
            "verl, or change the adapter as docs/verl.md describes"
        )
    undo = functools.partial(setattr, owner, name, original)
    if name not in vars(owner):  # it is inherited, or there is none
        undo = functools.partial(delattr, owner, name)
    setattr(owner, name, make(original))
    order = 1 + sum(patch.symbol == symbol for patch in patches())
    _applied.append((Patch(symbol=symbol, adapter=adapter, kind=kind, order=order, versions=versions), undo))


def _make_wrapper(original: Any, wrapper: Callable[..., Any]) -> Any:
    if isinstance(original, staticmethod | classmethod):
        return type(original)(_make_wrapper(original.__func__, wrapper))

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    @functools.wraps(original)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await wrapper(original, *args, **kwargs)

    return call_async if inspect.iscoroutinefunction(wrapper) else call


def _verl_version() -> str:
    import verl  # not above: this module is loaded ahead of verl's plugins, while verl is imported

    return verl.__version__
