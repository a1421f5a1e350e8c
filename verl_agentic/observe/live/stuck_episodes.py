"""Reports on episodes that wait too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verl_agentic.base.settings import Settings, setting
from verl_agentic.episode.trace.timeline import OpenSpan, Timeline

_MOST = 50
_NAMED = 3
"""Number of episodes that a warning names; the others are counted."""
_FRESH_S, _FRESH_TIMES = 60.0, 3.0
_WHAT = {
    "start": "the start of its environment",
    "generate": "a turn of the policy",
    "step": "a step of its environment",
    "score": "the score of its environment",
    "reward": "a reward worker",
    "close": "the end of its environment",
    "retry_wait": "its next attempt",
    "branch_wait": "a sibling to branch from",
    "": "the event loop, or code of its agent loop",
}


class WaitingOptions(Settings):
    """Warnings about long waits: the section `agentic.waiting`."""

    stuck_after_s: float = setting(120.0, above=0)
    """Warn after an episode, or the trainer, has waited this many seconds for one thing. The warning repeats whenever
    the wait has doubled."""
    stuck_generate_s: float = setting(600.0, above=0)
    """The same limit for turns of the policy, which wait for each other when the servers are full."""
    report_every_s: float = setting(10.0, above=0)
    """Seconds between two reports on waiting episodes in the run's folder."""


class BackoffWarner:
    """Reports when an age passes a limit, then twice the limit, and so on; once each."""

    def __init__(self, limit_s: float) -> None:
        """Starts without ages."""
        self._limit_s = limit_s
        self._next: dict[Any, float] = {}

    def is_due(self, key: Any, age_s: float) -> bool:
        """Returns whether the age of `key` has passed the limit, or twice its last reported age."""
        due = self._next.get(key, self._limit_s)
        if age_s < due:
            return False
        while due <= age_s:
            due *= 2
        self._next[key] = due
        return True

    def keep(self, keys: Iterable[Any]) -> None:
        """Forgets all other keys."""
        kept_keys = set(keys)
        self._next = {key: due for key, due in self._next.items() if key in kept_keys}


class StuckWatch:
    """Warns of each long wait of an episode once, and again whenever its age has doubled."""

    def __init__(self, options: WaitingOptions) -> None:
        """Starts without warnings."""
        self._ages = BackoffWarner(options.stuck_after_s)
        self._generate_ages = BackoffWarner(options.stuck_generate_s)

    def warnings(self, episodes: Sequence[Timeline], *, now: float) -> list[str]:
        """Returns the warnings at `now` (monotonic clock): the oldest three by name, and a count of the others."""
        due, keys = [], []
        for episode in episodes:
            # Spans are identified by their start. Their ids are reused after they end.
            waits_for = episode.waits_for()
            key = (episode, episode.last_end() if waits_for is None else waits_for)
            keys.append(key)
            is_turn = waits_for is not None and waits_for.kind == "generate"
            ages = self._generate_ages if is_turn else self._ages
            if ages.is_due(key, now - _find_wait_start(episode, waits_for)):
                due.append(state(episode, now=now, now_at=0.0))
        self._ages.keep(keys)
        self._generate_ages.keep(keys)
        due.sort(key=lambda wait: -wait["age_s"])
        return [*map(describe, due[:_NAMED]), *_count_waits(due[_NAMED:])]


def _count_waits(states: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns for each cause how many episodes wait for it."""
    waits = Counter(
        _describe_wait({**wait, "tool": wait["tool"] if wait["activity"] == "tool" else ""}) for wait in states
    )
    return [f"and {count} more wait for {cause}" for cause, count in waits.most_common()]


def _find_wait_start(episode: Timeline, waits_for: OpenSpan | None) -> float:
    return episode.last_end() if waits_for is None else waits_for.start


def state(episode: Timeline, *, now: float, now_at: float) -> dict[str, Any]:
    """Returns the current wait of an episode, as plain data.

    Args:
        episode: a running one.
        now: on the monotonic clock.
        now_at: the same moment in seconds since 1970.
    """
    waits_for = episode.waits_for()
    age_s = now - _find_wait_start(episode, waits_for)
    activity = "" if waits_for is None else waits_for.kind
    return {
        "uid": episode.uid,
        "session": episode.session,
        "split": "val" if episode.is_validation else "train",
        "step": episode.step,
        "agent": episode.agent,
        "env": episode.env,
        "activity": activity,
        "tool": waits_for.label if waits_for is not None and activity in ("tool", "step") else "",
        "turn": -1 if waits_for is None else waits_for.turn,
        "since": now_at - age_s,
        "age_s": age_s,
        "episode_s": now - episode.began,
    }


def states(episodes: Sequence[Timeline], *, now: float, now_at: float) -> list[dict[str, Any]]:
    """Returns the states of at most 50 episodes, the longest waits first."""
    waits = [state(episode, now=now, now_at=now_at) for episode in episodes]
    return sorted(waits, key=lambda wait: -wait["age_s"])[:_MOST]


def is_fresh(report: Mapping[str, Any], *, now_at: float) -> bool:
    """Returns whether a worker's report on its waiting episodes is current.

    Ray kills its workers, which then leave their last report behind. A report is too old after three of its intervals,
    and at least a minute.

    Args:
        report: one of `waiting-*.json`.
        now_at: seconds since 1970.
    """
    patience_s = max(_FRESH_S, _FRESH_TIMES * report.get("report_every_s", 0.0))
    return now_at - report.get("time", 0.0) <= patience_s


def describe(wait: Mapping[str, Any]) -> str:
    """Returns a state as one sentence."""
    subject = f"episode {wait['uid']}/{wait['session']}"
    places = [f"environment {wait['env']!r}"] if wait["env"] else [f"agent loop {wait['agent']!r}"]
    places += [f"turn {wait['turn']}"] if wait["turn"] >= 0 else []
    return (
        f"{subject} ({', '.join(places)}) has waited {wait['age_s']:.0f} s for {_describe_wait(wait)}; "
        f"it began {wait['episode_s']:.0f} s ago"
    )


def _describe_wait(wait: Mapping[str, Any]) -> str:
    kind, tool = wait["activity"], wait["tool"]
    if kind == "tool":
        return f"tool {tool!r}"
    activity = str(_WHAT.get(kind, kind))
    return f"{activity} (tool {tool!r})" if kind == "step" and tool else activity
