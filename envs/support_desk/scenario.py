"""Scenarios: the wish of a customer, and the right answer to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_agentic import DataError
from verl_agentic.rewards.ground_truth import object_of

Step = str | dict[str, Any]
"""A turn of the solution: a reply, or a call `{"name", "arguments"}`."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request of a customer."""

    kind: str
    message: str
    """The first message of the customer."""
    facts: Mapping[str, str]
    """Pattern of a question -> what the customer answers."""
    actions: Sequence[Mapping[str, Any]]
    """The calls that change the database as they should."""
    outputs: Sequence[str]
    """Texts that some reply must contain."""
    steps: Sequence[Step]
    """Turns of the solution."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """Lines of the scripted customer."""

    messages: tuple[str, ...]
    """Requests in order; the first one opens the conversation."""
    facts: Mapping[str, str]

    def to_json(self) -> str:
        """Returns the script as text, because rows have different facts."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, written: Any) -> Script:
        """Parses a row's script. Raises DataError if it is malformed."""
        given = object_of(written, of="support_desk's script")
        try:
            return cls(messages=tuple(given["messages"]), facts=dict(given["facts"]))
        except (KeyError, TypeError, ValueError) as cause:
            raise DataError(f"a script has messages and facts, got {given}; fix the row's script") from cause


@dataclass(frozen=True, kw_only=True)
class Target:
    """A row's ground truth."""

    actions: Sequence[Mapping[str, Any]]
    outputs: tuple[str, ...]

    def to_json(self) -> str:
        """Returns the ground truth as text, because calls have different arguments."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, ground_truth: Any) -> Target:
        """Parses a row's ground truth. Raises DataError if it is malformed."""
        given = object_of(ground_truth, of="support_desk")
        actions, outputs = given.get("actions"), given.get("outputs")
        if not _are(actions, _is_call) or not _are(outputs, lambda output: isinstance(output, str)):
            raise DataError(
                'the ground truth is {"actions": [{"name", "arguments"}, ...], "outputs": [text, ...]}, '
                f"got {str(given)[:200]}; fix the row"
            )
        return cls(actions=given["actions"], outputs=tuple(given["outputs"]))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Returns a call as rows store it."""
    return {"name": name, "arguments": arguments}


def _is_call(action: Any) -> bool:
    return (
        isinstance(action, Mapping)
        and isinstance(action.get("name"), str)
        and isinstance(action.get("arguments"), Mapping)
    )


def _are(found: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(found, list) and all(map(is_right, found))
