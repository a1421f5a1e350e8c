"""A domain and its data: tables, generated ones or tau2's, and the state that a task's calls lead to."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic import DataError

from .database import Database, Record, Tables
from .desk_tool import Domain
from .scenario import Call, Request, Target
from .tau2_files import Tau2Files


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Generated data of a domain."""

    tables: Callable[[], Tables]
    """Returns the database; cached."""
    identity: Callable[[Record, random.Random], tuple[dict[str, str], str, Call]]
    """Returns what a customer says about himself, the question for it, and the call that finds him."""
    requests: Callable[[Record, random.Random], list[Request]]
    """Returns possible requests of a customer."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A domain: its tools, and its data."""

    name: str
    tools: type[Domain]
    generator: Generator | None = None
    """None: only tau2's data."""

    def tables(self, data: str = "") -> Tables:
        """Returns the generated database, or that of tau2 in a folder; read once per process.

        Raises:
            DataError: the folder has no database, or one of another format.
        """
        if not data:
            assert self.generator is not None, self.name
            return self.generator.tables()
        return _read_tables(self.tools, Tau2Files(data=data, domain=self.name))

    def begin(self, tables: Tables, setup: Sequence[Call]) -> Domain:
        """Returns the domain in the initial state of a task."""
        domain = self.tools(Database(tables))
        for call in setup:
            domain.prepare(call)
        return domain


def final_state(world: World, tables: Tables, *, setup: Sequence[Call] = (), actions: Sequence[Call]) -> Domain:
    """Returns the domain after calls; refused ones change nothing, as in tau2."""
    domain = world.begin(tables, setup)
    for action in actions:
        domain.replay(action)
    return domain


@functools.cache
def _read_tables(tools: type[Domain], files: Tau2Files) -> Tables:
    tables = tools.read_tables(files)
    missing = [name for name in tools.tables if not isinstance(tables.get(name), Mapping)]
    if missing:
        raise DataError(f"the database of {files.domain} must have the tables {tools.tables}, got none of {missing}")
    return tables


def is_reached(domain: Domain, target: Target, gold: Mapping[Any, Record]) -> bool:
    """Returns whether a domain is in the state that a task demands.

    Args:
        domain: after the conversation.
        target: of the task.
        gold: changes of the database after the target's actions.
    """
    called = all(any(_is_call_of(action, tool_call) for tool_call in domain.carried_out) for action in target.actions)
    met = {
        "database": domain.database.changes() == gold,
        "assertions": all(map(domain.holds, target.assertions)),
        "calls": called,
    }
    return all(met[check] for check in target.checks)


def _is_call_of(action: Call, tool_call: tuple[str, Mapping[str, Any]]) -> bool:
    name, arguments = tool_call
    compared = action.get("compare", list(action["arguments"]))
    return name == action["name"] and all(arguments.get(key) == action["arguments"].get(key) for key in compared)
