"""Scenarios: the wish of a customer, and the right answer to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_agentic import DataError
from verl_agentic.graders.answers.ground_truth import object_of

Call = dict[str, Any]
"""A call `{"name", "arguments"}`; of a required call, `compare` may list the arguments that count."""
Assertion = Mapping[str, Any]
"""A statement about the final state: `{"name", "arguments", "value"}`."""
Step = str | Call
"""A turn of the solution: a reply, or a call of the desk."""
_CHECKS = ("database", "assertions", "calls")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request of a customer."""

    kind: str
    message: str
    """The first message of the customer."""
    facts: Mapping[str, str]
    """Pattern of a question -> what the customer answers."""
    actions: Sequence[Call]
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
    def read(cls, value: Any) -> Script:
        """Parses a row's script. Raises DataError if it is malformed."""
        record = object_of(value, of="support_desk's script")
        try:
            return cls(messages=tuple(record["messages"]), facts=dict(record["facts"]))
        except (KeyError, TypeError, ValueError) as cause:
            raise DataError(f"a script has messages and facts, got {record}; fix the row's script") from cause


@dataclass(frozen=True, kw_only=True)
class Target:
    """A row's ground truth."""

    actions: Sequence[Call]
    """Calls of both sides."""
    outputs: tuple[str, ...]
    """Texts that some reply must contain."""
    checks: tuple[str, ...] = ("database",)
    """Conditions of success: the database as after the actions, the assertions, or that each action was called."""
    assertions: Sequence[Assertion] = ()

    def to_json(self) -> str:
        """Returns the ground truth as text, because calls have different arguments."""
        record = asdict(self)
        if self.checks == ("database",):
            del record["checks"], record["assertions"]
        return json.dumps(record, ensure_ascii=False)

    @classmethod
    def read(cls, ground_truth: Any) -> Target:
        """Parses a row's ground truth. Raises DataError if it is malformed."""
        record = object_of(ground_truth, of="support_desk")
        actions: Any = record.get("actions")
        outputs: Any = record.get("outputs")
        checks, assertions = record.get("checks", ["database"]), record.get("assertions", [])
        is_right = _is_list_of(actions, _is_call) and _is_list_of(outputs, lambda output: isinstance(output, str))
        if not is_right or not _is_list_of(assertions, _is_call) or not _is_list_of(checks, _CHECKS.__contains__):
            raise DataError(
                'the ground truth is {"actions": [{"name", "arguments"}, ...], "outputs": [text, ...]}, '
                f"got {str(record)[:200]}; fix the row"
            )
        return cls(actions=actions, outputs=tuple(outputs), checks=tuple(checks), assertions=assertions)


def read_calls(text: str) -> list[Call]:
    """Parses a list of calls. Raises DataError if it is malformed."""
    calls: Any = None
    with contextlib.suppress(ValueError):
        calls = json.loads(text)
    if not _is_list_of(calls, _is_call):
        raise DataError(f'calls are a JSON list of {{"name", "arguments"}}, got {text[:200]!r}; make the rows anew')
    return calls


def call(name: str, /, **arguments: Any) -> Call:
    """Returns a call as rows store it."""
    return {"name": name, "arguments": arguments}


def change_request(
    *,
    kind: str,
    message: str,
    before: Sequence[Step],
    plan: str,
    action: Call,
    statement: str = "",
    facts: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
) -> Request:
    """Returns a request that the policy allows: first turns, the plan, a yes of the customer, the change.

    Args:
        kind: as in the row's `kind`.
        message: of the customer.
        before: turns before the plan, such as look-ups.
        plan: what the desk will do, as a sentence after "I will".
        action: the change.
        statement: what the desk says after it.
        facts: pattern of a question -> what the customer answers.
        outputs: texts that some reply must contain.
    """
    steps = [*before, f"I will {plan} Do you confirm, yes or no?", action, f"It is done.{statement}"]
    return Request(kind=kind, message=message, facts=facts or {}, actions=[action], outputs=outputs, steps=steps)


def read_request(
    *,
    kind: str,
    message: str,
    before: Sequence[Step],
    reply: str,
    outputs: Sequence[str],
    facts: Mapping[str, str] | None = None,
) -> Request:
    """Returns a question, or a request to refuse; nothing may change. For the arguments see `change_request`."""
    steps = [*before, reply]
    return Request(kind=kind, message=message, facts=facts or {}, actions=[], outputs=outputs, steps=steps)


def _is_call(action: Any) -> bool:
    return (
        isinstance(action, Mapping)
        and isinstance(action.get("name"), str)
        and isinstance(action.get("arguments"), Mapping)
    )


def _is_list_of(value: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_right, value))
