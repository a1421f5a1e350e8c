"""The sections of a configuration that this package reads.

A folder of adapters that reads sections has a module `<part>_features`, with one function for each. Adapters read a
section by calling its function. The guard calls all of them in the driver before Ray starts, and
`verl-agentic preflight` reports what each of them refuses. So no section can be parsed at one place and forgotten at
another.

A function takes verl's configuration, or the part of it that `of` names, and imports what it needs itself: these
modules are loaded in every process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import ConfigTypeError

from verl_agentic.base.errors import AgenticError
from verl_agentic.verl.features import all_features

F = TypeVar("F", bound=Callable[..., Any])
ROOT = "agentic"
"""The section below which users write what this package reads; see `config_root`."""
ROLLOUT = "actor_rollout_ref.rollout"
AGENTIC = f"{ROLLOUT}.custom.agentic"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section, or a key, of a configuration."""

    path: str
    of: str
    """The part of the configuration that its function takes; empty for all of it."""
    read: Callable[..., Any]

    def read_from(self, config: Any) -> Any:
        """Returns what the run makes of it; None where it is not set.

        Raises:
            AgenticError: what the run would raise.
        """
        try:
            if OmegaConf.select(config, self.path) is None:
                return None
        except ConfigTypeError:  # a list where the section around it should be, which its own reader refuses
            return None
        return self.read(OmegaConf.select(config, self.of) if self.of else config)


_sections: dict[str, Section] = {}


def all_sections() -> dict[str, Section]:
    """Returns the sections by path, outer ones first."""
    all_features()
    return dict(sorted(_sections.items(), key=lambda item: item[0].count(".")))


def section(path: str, *, of: str = "") -> Callable[[F], F]:
    """Registers the function that reads a section."""

    def register(function: F) -> F:
        assert path not in _sections, path
        _sections[path] = Section(path=path, of=of, read=function)
        return function

    return register


def refused_sections(config: Any) -> Iterator[AgenticError]:
    """Yields what the readers of all sections raise, with keys of the root; an inner section repeats no outer one."""
    messages: list[str] = []
    for entry in all_sections().values():
        try:
            with root_keys_in_errors():
                entry.read_from(config)
        except AgenticError as refused:
            if str(refused) not in messages:
                messages.append(str(refused))
                yield refused


def places() -> dict[str, str]:
    """Returns key below the root -> its place, of the sections that are not in verl's section for agent loops."""
    return {name: place for features in all_features() for name, place in features.places.items()}


def root_key(place: str) -> str:
    """Returns the key of the root that is moved to a place; the place itself where there is none."""
    for name, section_place in {**places(), "": AGENTIC}.items():
        if f"{place}.".startswith(f"{section_place}."):
            return f"{ROOT}.{name}".rstrip(".") + place.removeprefix(section_place)
    return place


def with_root_keys(text: str) -> str:
    """Returns a text in which every place of a section is the key of the root."""
    places_pattern = "|".join(map(re.escape, (*places().values(), AGENTIC)))
    return re.sub(rf"(?<![\w.])(?:{places_pattern})(?!\w)", lambda match: root_key(match[0]), text)


@contextmanager
def root_keys_in_errors() -> Iterator[None]:
    """Lets errors of the block name keys of the root (`with_root_keys`)."""
    try:
        yield
    except AgenticError as refused:
        named = type(refused)(with_root_keys(str(refused)))
        raise named.with_traceback(refused.__traceback__) from refused.__cause__


def has(config: Any, key: str, *values: Any) -> bool:
    """Tells whether one of the values is at a dotted key; without values, whether anything but null is."""
    value = OmegaConf.select(config, key)
    return value in values if values else value is not None


def plain_section(config: Any, key: str) -> Any:
    """Returns the resolved value at a dotted key, or None if it is not set. It need not be a mapping."""
    return plain(OmegaConf.select(config, key))


def plain(part: Any) -> Any:
    """Returns a part of a configuration as plain data."""
    return OmegaConf.to_container(part, resolve=True) if OmegaConf.is_config(part) else part
