"""The root `agentic` of a configuration: users write below it what verl reads at many places.

`prepare` moves every value below the root to its place in verl's configuration, and removes the root. Then it chooses
what features need and verl's defaults do not have. Everything else reads verl's places, which may also be written
directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

import verl_agentic
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import check_keys
from verl_agentic.verl.features import all_features
from verl_agentic.verl.sections import AGENTIC, ROOT, places, root_key

PLUGIN = Path(verl_agentic.__path__[0]) / "config" / "agentic" / "plugin.yaml"
"""Declares every key below the root."""
_UNSET = "???"
"""A value of `agentic/plugin.yaml` that the user has not set."""
_REFERENCE = re.compile(rf"\$\{{({ROOT}\.[\w.]+)\}}")


def prepare(config: Any) -> list[str]:
    """Moves the root to verl's places, makes the choices of all features, and returns these as `key=value (reason)`.

    Raises:
        ConfigError: unknown keys, different values at both places, or a value that contradicts a feature.
    """
    if not isinstance(config, DictConfig):
        return []
    if ROOT in config:
        _move_root(config)
    return list(_make_choices(config))


def place_of(key: str) -> str:
    """Returns the place of a key of the root: `agentic.credit.clip` is at `algorithm.credit.clip`."""
    name = key.removeprefix(ROOT).lstrip(".")
    for section_name, place in places().items():
        if f"{name}.".startswith(f"{section_name}."):
            return place + name.removeprefix(section_name)
        if section_name.startswith(f"{name}."):
            return place.removesuffix(section_name.removeprefix(name))
    return f"{AGENTIC}.{name}".rstrip(".")


def _move_root(config: DictConfig) -> None:
    before: Any = OmegaConf.to_container(config, resolve=False)
    declared: Any = OmegaConf.to_container(OmegaConf.load(PLUGIN), resolve=False)
    root_values = check_keys(before[ROOT], declared[ROOT], section=ROOT)
    for name, value in _iter_sections(_set_values(root_values, declared[ROOT])):
        _put_value(config, f"{ROOT}.{name}", value, present_value=_select_value(before, place_of(name)))
    with open_dict(config):
        del config[ROOT]
    _redirect_references(config)


def _iter_sections(root: Any) -> Iterator[tuple[str, Any]]:
    """Yields the sections of the root that have a place of their own: `credit`, and `critic.target` of `critic`."""
    for name, value in root.items() if isinstance(root, Mapping) else ():
        is_group = isinstance(value, Mapping) and any(section_name.startswith(f"{name}.") for section_name in places())
        yield from ((f"{name}.{key}", inner) for key, inner in value.items()) if is_group else [(name, value)]


def _set_values(section: Any, declared: Any) -> Any:
    """Returns a section without declared keys that are not set; a section of which nothing is set is not set."""
    if not isinstance(section, Mapping) or not isinstance(declared, Mapping):
        return section
    values = {name: _set_values(inner, declared.get(name)) for name, inner in section.items()}
    set_values = {name: value for name, value in values.items() if value != _UNSET}
    return set_values if set_values or not section else _UNSET


def _select_value(tree: Any, place: str) -> Any:
    """Returns the value at a place, or the interpolation that is written around it; None where nothing is set."""
    for name in place.split("."):
        if not isinstance(tree, Mapping):
            break
        tree = tree.get(name)
    return tree


def _put_value(config: DictConfig, key: str, value: Any, *, present_value: Any) -> None:
    if isinstance(value, Mapping) and isinstance(present_value, Mapping) and present_value:
        for name, inner in value.items():
            _put_value(config, f"{key}.{name}", inner, present_value=present_value.get(name))
    elif present_value in (None, _UNSET, {}):
        OmegaConf.update(config, place_of(key), value, merge=False, force_add=True)
    elif present_value != value:
        raise ConfigError(
            f"{key} and {place_of(key)} are the same key, got {value!r} and {present_value!r}; set only one of them"
        )


def _redirect_references(node: Any) -> None:
    """Points interpolations that lead below the root to the new places."""
    for key in range(len(node)) if isinstance(node, ListConfig) else list(node):
        inner: Any = node._get_node(key)
        if inner is None or inner._is_none() or inner._is_missing():
            continue
        if inner._is_interpolation():
            if _REFERENCE.search(inner._value()):
                node[key] = _REFERENCE.sub(lambda match: f"${{{place_of(match[1])}}}", inner._value())
        elif OmegaConf.is_config(inner):
            _redirect_references(inner)


def _make_choices(config: DictConfig) -> Iterator[str]:
    for make in (choice for features in all_features() for choice in features.choices):
        try:
            choices = list(make(config))
        except OmegaConfBaseException:  # an interpolation leads nowhere, which verl reports
            continue
        for key, value, reason in choices:
            OmegaConf.update(config, key, value, merge=False, force_add=True)
            yield f"{key}={value} ({root_key(reason)})"
