"""Names of papers, systems and tricks: where each one is, and how it differs from its paper.

A name is found in `names.yaml`, as the name of a bundled file, or as that of a method of a paper.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.paths import find_bundled
from verl_agentic.catalogue.paper_methods import PROTOCOLS, Method, read_file_methods, read_methods
from verl_agentic.config.recipe_groups import GROUPS, Recipe, load_recipe

_TABLE = Path(__file__).with_name("names.yaml")
_FILES = {
    "system": ("verl-agentic recipes {}", "verl_agentic/config/agentic/system/{}.yaml"),
    "method": ("verl-agentic recipes --method {}", "verl_agentic/config/agentic/method/{}.yaml"),
    "scale": ("verl-agentic recipes --scale {}", "verl_agentic/config/agentic/scale/{}.yaml"),
    "recipe": ("", "recipes/{}/README.md"),
    "environment": ("agentic.env: {}", "envs/{}/__init__.py"),
    "bridge": ("agentic.env: {}", "verl_agentic/bridges/{}/__init__.py"),
    "component": (
        "agentic.rubric.components: [{{use: {}}}]",
        "verl_agentic/rewards/components/{}.py",
        "verl_agentic/graders/components/{}.py",
    ),
    "estimator": (
        "algorithm.adv_estimator: {}",
        "verl_agentic/credit/advantages/{}.py",
        "verl_agentic/methods/advantages/{}.py",
    ),
    "loss": (
        "actor_rollout_ref.actor.policy_loss.loss_mode: {}",
        "verl_agentic/credit/policy_losses/{}.py",
        "verl_agentic/methods/policy_losses/{}.py",
    ),
    "gate": ("agentic.sampling.gates: [{}]", "verl_agentic/sampling/gates/{}.py"),
    "curriculum": ("agentic.curriculum.name: {}", "verl_agentic/sampling/curricula/{}.py"),
    "protocol": ("agentic.protocol: {}", f"{PROTOCOLS}/{{}}.yaml"),
    "check": ("verl-agentic diagnose RUN_DIR", "verl_agentic/observe/checks/{}.py"),
    "data": ("verl-agentic data make {}", "verl_agentic/data/makers/{}.py"),
    "file": ("", "{}"),
}
"""Kind of a place -> how it is turned on, and the patterns of its file, from the root of the repository."""
_NO_FILE = {"option": "{}", "command": "verl-agentic {}", "docs": "docs/{}", "verl": "verl/{}"}
"""Kind of a place without a file of this package -> how it is shown."""
MAX_NEAR = 5
"""Maximum number of near matches of an unknown name."""


@dataclass(frozen=True, kw_only=True)
class NamedPlace:
    """One place of the thing that a name stands for."""

    kind: str
    """A key of `KINDS`."""
    name: str
    file: str = ""
    """From the root of the repository; empty for an option, a command, a docs page, and a file of verl."""

    @property
    def use(self) -> str:
        """The config or command that turns it on, or its file."""
        pattern = _NO_FILE.get(self.kind) or _FILES[self.kind][0]
        return pattern.format(self.name) or self.file

    @property
    def summary(self) -> str:
        """One sentence; empty for a place without a file of this package."""
        if self.kind in GROUPS:
            recipe = load_recipe(self.kind, self.name)
            return f"{recipe.title}: {recipe.summary}"
        if not self.file.endswith(".py"):
            return ""
        docstring = ast.get_docstring(ast.parse(find_bundled(self.file).read_text(encoding="utf-8"))) or ""
        return " ".join(docstring.partition("\n\n")[0].split())

    @property
    def methods(self) -> list[Method]:
        """Returns the methods of papers in its file."""
        has_methods = self.file.endswith(".py") or self.kind == "protocol"
        return list(read_file_methods(self.file)) if has_methods else []


KINDS = (*_FILES, *_NO_FILE)


@dataclass(frozen=True, kw_only=True)
class Name:
    """A row of the table, or a name that follows from a bundled file."""

    key: str
    """Its form of `make_key`."""
    places: tuple[NamedPlace, ...]
    differs: str = ""
    """The largest deviation from the paper that no docstring has, or why the thing is missing."""

    @property
    def deviations(self) -> list[str]:
        """Returns the deviations from the paper: those of the table, of recipes, and of docstrings."""
        recipes = [load_recipe(place.kind, place.name) for place in self.places if place.kind in GROUPS]
        methods = [method for place in self.places for method in place.methods]
        texts = [
            self.differs,
            *(recipe.noted("differs") for recipe in recipes),
            *(row for recipe in recipes for row in _read_differences(recipe)),
            *(f"{method.deviations} ({method.place})" for method in methods if method.deviations),
        ]
        return list(dict.fromkeys(filter(None, texts)))


def make_key(name: str) -> str:
    """Returns a name in the form in which names are compared: `tau-bench`, `τ-bench` and `Tau_Bench` are one."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("τ", "tau").replace("ε", "epsilon")).strip("_")


def find_place(address: str) -> NamedPlace:
    """Returns the place at an address of the table, `kind/name`.

    Raises:
        ConfigError: the kind is unknown, or the file is missing.
    """
    kind, _, name = address.partition("/")
    if kind in _NO_FILE:
        return NamedPlace(kind=kind, name=name)
    files = [pattern.format(name) for pattern in _FILES.get(kind, ("",))[1:]]
    file = next((file for file in files if find_bundled(file).is_file()), None)
    if file is None:
        raise ConfigError(f"a place needs the form kind/name of a file, got {address!r}; use a kind of {sorted(KINDS)}")
    return NamedPlace(kind=kind, name=name, file=file)


@functools.cache
def read_table() -> dict[str, dict[str, dict[str, Any]]]:
    """Returns `names.yaml`: heading -> names of a row, which commas separate -> its keys `at` and `differs`."""
    groups = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return {
        heading: {names: row if isinstance(row, dict) else {"at": row} for names, row in rows.items()}
        for heading, rows in groups.items()
    }


@functools.cache
def _index_rows() -> dict[str, dict[str, Any]]:
    """Returns the rows of the table by the key of each of their names."""
    rows = (row for group in read_table().values() for row in group.items())
    return {make_key(name): row for names, row in rows for name in names.split(",")}


def find_name(text: str) -> Name:
    """Returns what a name stands for: the places of the table first, then bundled files of that name.

    Raises:
        ConfigError: nothing has the name; the message lists near ones.
    """
    key = make_key(text)
    row = _index_rows().get(key, {})
    addresses = list(dict.fromkeys([*row.get("at", ()), *_list_files().get(key, ())]))
    if not addresses and "differs" not in row:
        methods = [method for method in read_methods() if make_key(method.name) == key]
        addresses = list(dict.fromkeys(f"file/{method.place}" for method in methods))
        if not addresses:
            raise ConfigError(f"unknown name, got {text!r}{_describe_near(key)}; docs/papers.md lists all")
    return Name(key=key, places=tuple(map(find_place, addresses)), differs=row.get("differs", ""))


def list_names() -> list[str]:
    """Returns all names: of the table, of bundled files, and of methods of papers."""
    return sorted(_index_rows().keys() | _list_files().keys() | {make_key(method.name) for method in read_methods()})


@functools.cache
def _list_files() -> dict[str, list[str]]:
    """Returns the addresses of bundled files by their name."""
    addresses: dict[str, list[str]] = {}
    for kind, (_, *patterns) in _FILES.items():
        for pattern in patterns if kind != "file" else ():
            before, _, after = pattern.partition("{}")
            folder = find_bundled(before)
            for path in sorted(folder.glob(f"*{after}")):
                name = path.relative_to(folder).parts[0].removesuffix(after)
                if not name.startswith("__"):
                    addresses.setdefault(make_key(name), []).append(f"{kind}/{name}")
    return addresses


def _describe_near(key: str) -> str:
    names = list_names()
    parts = [name for name in names if key in name.split("_")]
    near = list(dict.fromkeys([*difflib.get_close_matches(key, names, n=MAX_NEAR), *parts]))[:MAX_NEAR]
    return f"; did you mean {', '.join(near)}" if near else ""


def _read_differences(recipe: Recipe) -> list[str]:
    """Returns the rows of the README's table of differences."""
    _, _, table = recipe.readme.partition("| where ours differs | authors | here |\n")
    rows = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()[1:]]
    return [f"{row[0]}: {row[1]}; here {row[2]}" for row in rows if len(row) == 3]
