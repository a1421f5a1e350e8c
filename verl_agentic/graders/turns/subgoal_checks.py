"""Verifiable subgoals: predicates as data on the policy's calls and text, or on the environment's final info.

    {tool: open_door, arguments: {room: kitchen}}   a successful call of this tool with at least these arguments
    {text: "therefore x = 2"}                       the policy wrote this
    {info: rooms_found, at_least: 3}                the environment reported this number at the end

`tool` and `text` in one subgoal must hold in the same turn. `name` is optional. None values are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.answers.tool_calls import succeeded
from verl_agentic.rewards.sample import Call, Sample, Turn

_KEYS = frozenset({"name", "tool", "arguments", "text", "info", "at_least"})


@dataclass(frozen=True, kw_only=True)
class Subgoal:
    """One subgoal; see the module."""

    name: str
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    info: str | None = None
    at_least: float = 1.0

    @classmethod
    def from_mapping(cls, value: Any, *, name: str) -> Subgoal:
        """Reads a subgoal with a default name. Raises DataError if it is no mapping, has unknown keys or no check."""
        if not isinstance(value, Mapping):
            raise DataError(f"subgoal {name!r} must be a mapping, got {value!r}; write {{tool: ..., arguments: ...}}")
        if unknown := sorted(map(str, value.keys() - _KEYS)):
            raise DataError(f"subgoal {name!r} has unknown keys, got {unknown}; use {sorted(_KEYS)}")
        texts = {key: value[key] for key in ("name", "tool", "text", "info") if value.get(key) is not None}
        if wrong := {key: text for key, text in texts.items() if not isinstance(text, str) or not text.strip()}:
            raise DataError(f"subgoal {name!r} must have texts that are not empty, got {wrong}; fix or leave them out")
        if not texts.keys() & {"tool", "text", "info"} or ("info" in texts and texts.keys() & {"tool", "text"}):
            raise DataError(f"subgoal {name!r} needs tool or text, or else info, got {dict(value)}; give one of them")
        arguments, at_least = value.get("arguments") or {}, value.get("at_least")
        at_least = 1.0 if at_least is None else at_least
        if not isinstance(arguments, Mapping) or (arguments and "tool" not in texts):
            raise DataError(f"subgoal {name!r} must have arguments as a mapping beside a tool, got {arguments!r}")
        if isinstance(at_least, bool) or not isinstance(at_least, int | float):
            raise DataError(f"subgoal {name!r} must have a number as at_least, got {at_least!r}")
        # A column of structs fills missing keys with None.
        arguments = {key: argument for key, argument in arguments.items() if argument is not None}
        return cls(**{"name": name, **texts}, arguments=arguments, at_least=float(at_least))

    def reached_at(self, sample: Sample) -> int | None:
        """Returns the index of the first turn that reached it, or None.

        The environment's final info is credited to the last turn.
        """
        if self.info is not None:
            reported = {} if sample.env is None else sample.env.info
            is_reached = self.info in reported and reported[self.info] >= self.at_least
            return sample.turns[-1].index if is_reached and sample.turns else None
        return next((turn.index for turn in sample.turns if self._is_met_by_turn(turn)), None)

    def _is_met_by_turn(self, turn: Turn) -> bool:
        return (self.text is None or self.text in turn.text) and (
            self.tool is None or any(self._is_met_by_call(call) for call in turn.calls)
        )

    def _is_met_by_call(self, call: Call) -> bool:
        return (
            call.name == self.tool
            and succeeded(call)
            and all(key in call.arguments and call.arguments[key] == value for key, value in self.arguments.items())
        )


def read_subgoals(value: Any) -> list[Subgoal]:
    """Returns the subgoals of a row; raises DataError as `Subgoal.from_mapping`, and if they are not a list."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DataError(
            f"extra_info.subgoals must be a list of subgoals, got {value!r}; see "
            "verl_agentic.graders.turns.subgoal_checks"
        )
    return [Subgoal.from_mapping(subgoal, name=f"subgoal {index}") for index, subgoal in enumerate(value)]


def reached_turns(subgoals: Sequence[Subgoal], sample: Sample) -> list[int]:
    """Returns the turn of each reached subgoal, in the order of turns; a subgoal counts once.

    Empty for an episode without an answer and without a call.
    """
    if is_silent(sample):
        return []
    turns = (subgoal.reached_at(sample) for subgoal in subgoals)
    return sorted(turn for turn in turns if turn is not None)
