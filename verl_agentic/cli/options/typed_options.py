"""Options of a command as fields of a class, so that its functions get typed values; their help, brief or whole."""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from verl_agentic.base.settings import Bounds, Settings, hints_of, is_sequence
from verl_agentic.cli.options.option_values import positive, whole

T = TypeVar("T", bound="Options")


def declare(help: str, default: Any = None, *, is_required: bool = False, **argument: Any) -> Any:
    """Declares an option. Its name, type, choices and default follow from the field.

    Args:
        help: begins with a verb.
        default: value without the option.
        is_required: whether there is no default.
        argument: `min`, `max` and `above` of numbers; `is_positional`; `flags` other than that of the name; and what
            `argparse` takes.
    """
    bounds = {name: argument.pop(name) for name in ("min", "max", "above") if name in argument}
    metadata = {"argument": {"help": help, **argument}, "bounds": Bounds(**bounds)}
    return dataclasses.field(default=dataclasses.MISSING if is_required else default, metadata=metadata)


class Options(Settings):
    """Base of the options of a command, or of options that several commands share."""

    GROUP: ClassVar[tuple[str, ...]] = ()
    """Title, and perhaps description, of the group of the help that has the options of a class."""
    COMMON: ClassVar[tuple[str, ...]] = ()
    """Options that `--help` shows beside the required ones. Empty: it shows all. `--help all` always does."""
    traceback: bool = False
    """Whether to print tracebacks, an option of every command."""


def add_options(parser: argparse.ArgumentParser, options: type[Options]) -> None:
    """Adds the options of a class, then those of its base classes."""
    hints, fields = hints_of(options), {item.name: item for item in dataclasses.fields(options)}
    places: dict[tuple[str, ...], Any] = {(): parser}
    for cls in options.__mro__:
        if (group := vars(cls).get("GROUP", ())) not in places:
            places[group] = parser.add_argument_group(*group)
        for name in vars(cls).get("__annotations__", ()):
            item = fields.pop(name, None)
            if item is not None and "argument" in item.metadata:
                flags, argument = _describe_argument(item, hints[name])
                if options.COMMON and name not in options.COMMON and item.default is not dataclasses.MISSING:
                    argument["help"] = RareHelp(argument["help"])
                places[group].add_argument(*flags, **argument)


def _describe_argument(item: dataclasses.Field[Any], kind: Any) -> tuple[list[str], dict[str, Any]]:
    """Returns the flags of an option and the other arguments of `add_argument`."""
    declared, derived = dict(item.metadata["argument"]), dict[str, Any]()
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(arg for arg in get_args(kind) if arg is not type(None))
    if is_sequence(kind) and get_origin(kind) is not tuple:  # a tuple is one value, which `type` reads
        if "nargs" not in declared:
            derived["action"] = "append"
        kind = get_args(kind)[0]
    if kind is bool:
        derived["action"] = "store_true"
    elif get_origin(kind) is Literal:
        derived["choices"] = get_args(kind)
    else:
        derived["type"] = _choose_type(kind, item.metadata["bounds"])
    if item.default is not dataclasses.MISSING:
        derived["default"] = list(item.default) if isinstance(item.default, tuple) else item.default
    if declared.pop("is_positional", False):
        return [item.name], derived | declared
    flags = declared.pop("flags", [f"--{item.name.replace('_', '-')}"])
    return flags, {**derived, **declared, "dest": item.name, "required": item.default is dataclasses.MISSING}


def _choose_type(kind: Any, bounds: Bounds) -> Callable[[str], Any]:
    if kind is int and math.isfinite(bounds.min):
        return whole(int(bounds.min), int(bounds.max) if math.isfinite(bounds.max) else None)
    return positive if kind is float and bounds.above == 0 else kind


def read_options(options: type[T], args: argparse.Namespace) -> T:
    """Returns the options among the parsed arguments."""
    names = (item.name for item in dataclasses.fields(options))
    return options(**{name: getattr(args, name) for name in names if hasattr(args, name)})


def typed_command(
    options: type[T], work: Callable[[T], int]
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """Returns `add_arguments` and `run` of a command whose work takes its options."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Adds the options."""
        add_options(parser, options)

    def run(args: argparse.Namespace) -> int:
        """Does the work and returns the exit code."""
        return work(read_options(options, args))

    return add_arguments, run


class RareHelp(str):
    """Help of an option that only `--help all` shows."""


class _BriefFormatter(argparse.HelpFormatter):
    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        super().add_usage(usage, [action for action in actions if not _is_rare(action)], groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        if not _is_rare(action):
            super().add_argument(action)


class BriefParser(argparse.ArgumentParser):
    """Parser whose help leaves out rare options and names the command that shows them. So do its subcommands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _BriefFormatter, **options})

    def format_help(self) -> str:
        """Returns the help."""
        num_rare = sum(map(_is_rare, self._actions))
        ending = f"\nShow {num_rare} more options: {self.prog} --help all\n" if num_rare else ""
        return super().format_help() + ending


def _is_rare(action: argparse.Action) -> bool:
    return isinstance(action.help, RareHelp)
