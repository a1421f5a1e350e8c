"""The config groups of recipes: `agentic/system`, `agentic/method` and `agentic/scale`, with the source of each value.

A file begins with `# @package _global_` and a summary, `# Name: one sentence.`. Header lines `# key: value` follow.
Every value has its source as the comment on its line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import did_you_mean

GROUPS = ("system", "method", "scale")
SOURCES = ("paper", "code", "verl", "issue", "blog", "ours")
"""First words of a source."""
_FOLDER = Path(__file__).parent / "agentic"
_OVERRIDE = "override /"
_ELSEWHERE = "; `verl-agentic recipes NAME` finds environments, rewards and any other name"


@dataclass(frozen=True, kw_only=True)
class SourcedValue:
    """A value that a file sets."""

    key: str
    """Dotted; `components[0]` is an item of a list that is written over several lines."""
    value: Any
    text: str
    """As it is written, on one line."""
    source: str
    """Empty if its line has none."""
    recipe: str
    """Name of the file that sets it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One file of a group."""

    group: str
    name: str
    title: str
    summary: str
    header: tuple[tuple[str, str], ...]
    """The header lines, in their order."""
    values: tuple[SourcedValue, ...]
    """Inherited ones included."""

    def noted(self, key: str) -> str:
        """Returns the first header line of a key; empty without one."""
        return next((value for name, value in self.header if name == key), "")

    def value(self, key: str) -> Any:
        """Returns the value at a key; None if the file does not set it."""
        return next((entry.value for entry in self.values if entry.key == key), None)

    @property
    def readme(self) -> str:
        """Returns its README; empty without one."""
        path = _FOLDER / self.group / f"{self.name}.md"
        return path.read_text(encoding="utf-8") if path.is_file() else ""


def recipe_names(group: str) -> list[str]:
    """Returns the names of a group's files."""
    return sorted(path.stem for path in (_FOLDER / group).glob("*.yaml"))


@functools.cache
def load_recipe(group: str, name: str) -> Recipe:
    """Reads a file of a group, once in a process.

    Raises:
        ConfigError: the group has no such file, or the file does not have the form.
    """
    if name not in (names := recipe_names(group)):
        raise ConfigError(
            f"unknown {group}, got {name!r}; use one of {', '.join(names)}{did_you_mean(name, names) or _ELSEWHERE}"
        )
    text = (_FOLDER / group / f"{name}.yaml").read_text(encoding="utf-8")
    first, *lines = text.splitlines()
    form = re.match(r"# ([^:]+): (.+)", lines[0]) if lines else None
    if first != "# @package _global_" or form is None:
        raise ConfigError(
            f"{group}/{name}.yaml must begin with '# @package _global_' and '# Name: one sentence.', got {first!r} and "
            f"{lines[:1]!r}; fix its first lines"
        )
    header = []
    for line in lines[1:]:
        if (match := re.match(r"# (\w+): (.+)", line)) is None:
            break
        header.append((match[1], match[2]))
    parents, own_values = _split_parents(_iter_values(yaml.compose(text, Loader=_Loader), "", text, recipe=name))
    return Recipe(
        group=group,
        name=name,
        title=form[1],
        summary=form[2],
        header=tuple(header),
        values=tuple(_merge_layers([*(load_recipe(group, parent).values for parent in parents), own_values])),
    )


class _Loader(yaml.SafeLoader):
    """Reads numbers as OmegaConf does: 1e-6 is one."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d[\d_]*\.[\d_]*([eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.\d+([eE][-+]?\d+)?|\.(inf|nan))$", re.I),
    list("-+0123456789."),
)


def _iter_values(
    node: yaml.Node, key: str, text: str, *, recipe: str, flow: yaml.Node | None = None
) -> Iterator[SourcedValue]:
    """Yields the values below a node; a list in flow style is one value, and so is an item of any other list."""
    if isinstance(node, yaml.MappingNode) and node.value:
        around = flow or (node if node.flow_style else None)
        for name, inner in node.value:
            yield from _iter_values(inner, f"{key}.{name.value}".lstrip("."), text, recipe=recipe, flow=around)
    elif isinstance(node, yaml.SequenceNode) and not node.flow_style:
        for place, inner in enumerate(node.value):
            yield _read_value(inner, f"{key}[{place}]", text, recipe=recipe)
    else:
        yield _read_value(node, key, text, recipe=recipe, flow=flow)


def _read_value(node: yaml.Node, key: str, text: str, *, recipe: str, flow: yaml.Node | None = None) -> SourcedValue:
    # The comment is behind the outermost flow mapping, or behind the first value of an item over several lines.
    last = flow or node
    while isinstance(last, yaml.MappingNode) and not last.flow_style:
        last = last.value[0][1]
    comment = re.match(r"[ \t]+#[ \t]*([^\n]*)", text[last.end_mark.index :])
    value = _Loader("").construct_object(node, deep=True)
    yaml_text = text[node.start_mark.index : node.end_mark.index].strip()
    if "\n" in yaml_text:  # there are comments between the lines
        yaml_text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6).strip()
    return SourcedValue(
        key=key, value=value, text=yaml_text, source=comment[1].strip() if comment else "", recipe=recipe
    )


def _split_parents(values: Iterable[SourcedValue]) -> tuple[list[str], list[SourcedValue]]:
    """Returns the files of the group that a file begins with, and its own values.

    `override /group: option` in the defaults is the value of `group`.
    """
    parents, own_values = [], []
    for value in values:
        if not value.key.startswith("defaults"):
            own_values.append(value)
            continue
        for entry in value.value if isinstance(value.value, list) else [value.value]:
            if isinstance(entry, dict):
                own_values += [replace(value, key=k.removeprefix(_OVERRIDE), value=v, text=v) for k, v in entry.items()]
            elif entry != "_self_":
                parents.append(entry)
    return parents, own_values


def _merge_layers(layers: Iterable[Iterable[SourcedValue]]) -> list[SourcedValue]:
    """Returns the values of several layers; those of a later one win, and its list replaces an earlier one."""
    values_by_key: dict[str, SourcedValue] = {}
    for layer in layers:
        new = {value.key: value for value in layer}
        lists = {key.partition("[")[0] for key in new}
        values_by_key = {
            key: value for key, value in values_by_key.items() if key in new or key.partition("[")[0] not in lists
        } | new
    return list(values_by_key.values())
