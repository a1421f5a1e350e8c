"""Timelines of the running episodes of this process, and what each waits for now.

Code records spans with `with timeline.span("tool", label="search", turn=2): ...`, which takes microseconds. Outside of
`recording` nothing is recorded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KINDS = ("start", "generate", "step", "tool", "score", "reward", "close", "retry_wait", "branch_wait")
"""`start`, `step`, `score` and `close` are the environment's; `reward` is verl's reward worker; `branch_wait` waits for
a sibling to branch from."""
NO_TURN = -1
SUB_AGENT = "sub_agent"
"""Label of a sub-agent's turns, which lie inside the delegating tool call."""
UNKNOWN_TOOL = "unknown"
"""Label of calls of unknown tools, whose names the policy made up."""


class Span(NamedTuple):
    """An interval in which an episode did or awaited something."""

    kind: str
    """One of `KINDS`."""
    label: str
    """The tool of a `tool`, the tools of a `step`, or another label."""
    turn: int
    """-1 outside of the turns."""
    start_s: float
    """Seconds since the episode began."""
    end_s: float


@dataclass(eq=False, slots=True)
class OpenSpan:
    """An open span; `start` is on the monotonic clock."""

    kind: str
    label: str
    turn: int
    start: float
    parent: OpenSpan | None
    num_inside: int = 0
    """Open spans in it."""


@dataclass(eq=False, kw_only=True)
class Timeline:
    """One episode, from its start in the worker."""

    uid: str
    session: int = 0
    agent: str = ""
    """Name of the agent loop."""
    env: str = ""
    step: int = 0
    is_validation: bool = False
    began: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    """The same moment, in seconds since 1970."""
    _spans: list[Span] = field(default_factory=list)
    _open: dict[OpenSpan, None] = field(default_factory=dict)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Ended spans, in the order of starts."""
        return tuple(sorted(self._spans, key=lambda span: span.start_s))

    def begin(self, kind: str, *, label: str, turn: int, parent: OpenSpan | None) -> OpenSpan:
        """Starts a span, inside another one or at the top."""
        begun = OpenSpan(kind, label, turn, time.monotonic(), parent)
        if parent is not None:
            parent.num_inside += 1
        self._open[begun] = None
        return begun

    def end(self, span: OpenSpan) -> None:
        """Ends a span, once."""
        del self._open[span]
        if span.parent is not None:
            span.parent.num_inside -= 1
        self.add(span.kind, label=span.label, turn=span.turn, start=span.start, end=time.monotonic())

    def add(self, kind: str, *, label: str, turn: int, start: float, end: float) -> None:
        """Adds an ended span; `start` and `end` are on the monotonic clock."""
        self._spans.append(Span(kind, label, turn, start - self.began, end - self.began))

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Renames labels of ended spans."""
        self._spans = [span._replace(label=labels.get(span.label, span.label)) for span in self._spans]

    def waits_for(self) -> OpenSpan | None:
        """Returns the oldest innermost open span, or None between spans. Safe to call from other threads.

        Ignores open spans inside of ended ones, which are abandoned work (`deadlines.within`).
        """
        still_open = self._open.copy()
        innermost = [span for span in still_open if not span.num_inside and _is_awaited(span, still_open)]
        return min(innermost, key=lambda span: span.start, default=None)

    def last_end(self) -> float:
        """Returns the time of its last start or end of a span, on the monotonic clock."""
        return self.began + self._spans[-1].end_s if self._spans else self.began


def _is_awaited(span: OpenSpan, still_open: Collection[OpenSpan]) -> bool:
    """Returns whether all enclosing spans are open."""
    parent = span.parent
    while parent is not None and parent in still_open:
        parent = parent.parent
    return parent is None


_running: dict[int, Timeline] = {}
_position: ContextVar[tuple[Timeline, OpenSpan | None] | None] = ContextVar("activity", default=None)


def running() -> list[Timeline]:
    """Returns the running episodes of this process, in order of start. Safe to call from other threads."""
    return list(_running.values())


def current() -> Timeline | None:
    """Returns the caller's episode, or None."""
    position = _position.get()
    return None if position is None else position[0]


@contextlib.contextmanager
def recording(**identity: Any) -> Iterator[Timeline]:
    """Registers an episode (arguments of `Timeline`) until the context ends; keeps an already running one."""
    outer = current()
    if outer is not None:
        yield outer
        return
    timeline = Timeline(**identity)
    token = _position.set((timeline, None))
    _running[id(timeline)] = timeline
    try:
        yield timeline
    finally:
        del _running[id(timeline)]
        _position.reset(token)


class _Recorded:
    """The context of a span."""

    __slots__ = ("_kind", "_label", "_span", "_timeline", "_token", "_turn")
    _token: Token[Any] | None
    _span: OpenSpan

    def __init__(self, kind: str, label: str, turn: int) -> None:
        self._kind, self._label, self._turn, self._token = kind, label, turn, None

    def __enter__(self) -> None:
        position = _position.get()
        if position is not None:
            self._timeline = timeline = position[0]
            self._span = timeline.begin(self._kind, label=self._label, turn=self._turn, parent=position[1])
            self._token = _position.set((timeline, self._span))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _position.reset(self._token)
            self._timeline.end(self._span)


def span(kind: str, *, label: str = "", turn: int = NO_TURN) -> contextlib.AbstractContextManager[None]:
    """Returns a context that records a span of the caller's episode, if there is one.

    Args:
        kind: one of `KINDS`.
        turn: of the policy; -1 outside of the turns.
    """
    return _Recorded(kind, label, turn)


def is_inside(kind: str) -> bool:
    """Returns whether the caller is inside a span of that kind."""
    position = _position.get()
    inside = None if position is None else position[1]
    while inside is not None and inside.kind != kind:
        inside = inside.parent
    return inside is not None


def longest(spans: Sequence[Span], max_spans: int) -> tuple[Span, ...]:
    """Returns the `max_spans` longest spans, in their order."""
    if len(spans) <= max_spans:
        return tuple(spans)
    indices = sorted(range(len(spans)), key=lambda index: spans[index].start_s - spans[index].end_s)[:max_spans]
    return tuple(spans[index] for index in sorted(indices))
