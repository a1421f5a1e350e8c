"""Turns of siblings as a tree of states, with the mean outcome below each turn (Q).

Siblings share a state as long as all their tokens are equal: where attempts search a tree (`evaluate --tree`), where
rollouts branch (`agentic.branching`), and at the prompt.

Paper: https://arxiv.org/abs/2408.07199 (Agent Q, section 4: Q of a node as the mean of its rollouts, mixed with a
critique)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.types import SegmentKind
from verl_agentic.data.export.logged_sessions import LoggedSession
from verl_agentic.graders.turns.step_labels import state_value


@dataclass(frozen=True, kw_only=True)
class Step:
    """A turn of the policy in a state."""

    session: LoggedSession
    """The first session that took it."""
    tokens: Mapping[str, Any]
    """`TOKENS` of that session's row."""
    turn: int
    start: int
    """Place of its first token in the response."""
    end: int
    outcomes: list[float] = field(default_factory=list)
    """Outcomes of all sessions that took it."""

    @property
    def value(self) -> float:
        """Its Q: the mean outcome."""
        return state_value(self.outcomes)

    @property
    def state_ids(self) -> list[int]:
        """All tokens before it."""
        return self.tokens["prompt_ids"] + self.tokens["response_ids"][: self.start]

    @property
    def ids(self) -> list[int]:
        """Its tokens."""
        return self.tokens["response_ids"][self.start : self.end]

    @property
    def mask(self) -> list[int]:
        """1 on its tokens that are trained."""
        return self.tokens["response_mask"][self.start : self.end]


def branch_points(
    group: Sequence[tuple[float, LoggedSession, Mapping[str, Any]]], *, min_continuations: int
) -> list[list[Step]]:
    """Returns the steps of each state, in the order in which siblings reached it.

    Args:
        group: outcome, session and `TOKENS` of its first row, for all siblings.
        min_continuations: K; steps of fewer sessions are left out.
    """
    nodes: dict[tuple[int, tuple[int, ...]], int] = {}
    states: dict[int, dict[int, Step]] = {}
    for outcome, session, tokens in group:
        ids, end = tokens["response_ids"], 0
        node = nodes.setdefault((-1, tuple(tokens["prompt_ids"])), len(nodes))
        for turn, start, stop in _iter_turn_spans(tokens["segments"]):
            state = nodes.setdefault((node, tuple(ids[end:start])), len(nodes))
            node = nodes.setdefault((state, tuple(ids[start:stop])), len(nodes))
            new = Step(session=session, tokens=tokens, turn=turn, start=start, end=stop)
            states.setdefault(state, {}).setdefault(node, new).outcomes.append(outcome)
            end = stop
    frequent_steps = (
        [s for s in steps.values() if len(s.outcomes) >= min_continuations and any(s.mask)] for steps in states.values()
    )
    return [steps for steps in frequent_steps if steps]


def _iter_turn_spans(segments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """Yields turn, start and end of what the policy wrote."""
    spans: dict[int, tuple[int, int]] = {}
    for segment in segments:
        if segment["kind"] == SegmentKind.MODEL.value:
            start, _ = spans.get(segment["turn"], (segment["start"], 0))
            spans[segment["turn"]] = (start, segment["end"])
    yield from ((turn, start, end) for turn, (start, end) in spans.items())
