"""What episodes do and when: a timeline for each that plays in this process, and what it waits for now.

Whoever plays says `with activity.span("tool", label="search", turn=2): ...`. That costs a few microseconds, and
nothing is kept where no episode has been announced by `recording`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KINDS = ("start", "generate", "step", "tool", "score", "reward", "close", "retry_wait", "branch_wait")
"""`start`, `step`, `score` and `close` are the environment's; `reward` is verl's reward worker; `branch_wait` waits for
a sibling to branch from."""
NO_TURN = -1
SUB_AGENT = "sub_agent"
"""Label of the turns of a sub-agent, which lie inside the tool call that delegates to it."""
UNKNOWN_TOOL = "unknown"
"""Label of calls of tools that there are not: their names are the policy's."""


class Span(NamedTuple):
    """Something that an episode did, or waited for."""

    kind: str
    """One of `KINDS`."""
    label: str
    """The tool of a `tool`; the tools of a `step`; empty, or what tells it from others."""
    turn: int
    """-1 outside of the turns."""
    start_s: float
    """Seconds since the episode began."""
    end_s: float


@dataclass(eq=False, slots=True)
class OpenSpan:
    """A span that has not ended; `start` is that of the monotonic clock."""

    kind: str
    label: str
    turn: int
    start: float
    parent: OpenSpan | None
    num_inside: int = 0
    """Open spans in it."""


@dataclass(eq=False, kw_only=True)
class Timeline:
    """One episode, from the moment that its worker takes it up."""

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
        """What has ended, in the order of the starts; what has not is left out."""
        return tuple(sorted(self._spans, key=lambda span: span.start_s))

    def begin(self, kind: str, *, label: str, turn: int, parent: OpenSpan | None) -> OpenSpan:
        """Begins a span inside another one, or in none."""
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
        """Adds a span that is over; `start` and `end` are of the monotonic clock."""
        self._spans.append(Span(kind, label, turn, start - self.began, end - self.began))

    def waits_for(self) -> OpenSpan | None:
        """Returns what it has waited for longest: of the spans without another one inside, the oldest.

        A span that lies in one that has ended is work that was left behind (`deadlines.within`): nobody waits for it.
        None between two spans: then its own code runs, or waits for the event loop. Safe to call from other threads.
        """
        still_open = self._open.copy()
        innermost = [span for span in still_open if not span.num_inside and _is_awaited(span, still_open)]
        return min(innermost, key=lambda span: span.start, default=None)

    def last_end(self) -> float:
        """Returns when it last began or ended something, on the monotonic clock."""
        return self.began + self._spans[-1].end_s if self._spans else self.began


def _is_awaited(span: OpenSpan, still_open: Collection[OpenSpan]) -> bool:
    """Tells whether all that a span lies in is open."""
    parent = span.parent
    while parent is not None and parent in still_open:
        parent = parent.parent
    return parent is None


_running: dict[int, Timeline] = {}
_position: ContextVar[tuple[Timeline, OpenSpan | None] | None] = ContextVar("activity", default=None)


def running() -> list[Timeline]:
    """Returns the episodes that play in this process now, in the order they began; safe to call from other threads."""
    return list(_running.values())


def current() -> Timeline | None:
    """Returns the episode that the caller plays; None where none was announced."""
    position = _position.get()
    return None if position is None else position[0]


@contextlib.contextmanager
def recording(**identity: Any) -> Iterator[Timeline]:
    """Announces an episode (arguments of `Timeline`) until the context ends; the one that plays already goes on."""
    known = current()
    if known is not None:
        yield known
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
    """Returns a context that is a span of the episode that the caller plays; nothing is recorded where there is none.

    Args:
        kind: one of `KINDS`.
        label: see `Span`.
        turn: of the policy; -1 outside of the turns.
    """
    return _Recorded(kind, label, turn)


def is_inside(kind: str) -> bool:
    """Tells whether the caller plays inside a span of that kind."""
    position = _position.get()
    inside = None if position is None else position[1]
    while inside is not None and inside.kind != kind:
        inside = inside.parent
    return inside is not None


def longest(spans: Sequence[Span], max_spans: int) -> tuple[Span, ...]:
    """Returns at most that many spans, the longest ones, in their order."""
    if len(spans) <= max_spans:
        return tuple(spans)
    kept = sorted(range(len(spans)), key=lambda index: spans[index].start_s - spans[index].end_s)[:max_spans]
    return tuple(spans[index] for index in sorted(kept))
