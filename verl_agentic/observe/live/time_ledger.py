"""The time of a training step by stage.

verl times the stages of a step (`timing_s/*`). The longest one, `gen`, is a wait: the trainer polls until the episodes
of its batch have ended. Episodes overlap, so the wait is split by its critical path: the spans of the episode that
ended last. The time after its end is `poll`: the samples were ready, but the trainer did not have its batch yet.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from verl_agentic.base.metric import Metric
from verl_agentic.episode.trace.timeline import SUB_AGENT, Span, longest

GEN_TIMERS = ("gen", "switch_wait")
"""verl's timers in which the trainer waits for episodes."""
_WHERE = {
    "reward": "reward",
    "old_log_prob": "old_log_prob",
    "ref": "ref",
    "values": "values",
    "adv": "advantage",
    "update_critic": "update_critic",
    "update_actor": "update_actor",
    "update_weights": "weight_sync",
    "switch_to_trainer": "rollout_switch",
    "switch_to_rollout": "rollout_switch",
    "save_checkpoint": "checkpoint",
}
_OF_KIND = {
    "generate": "generation",
    "tool": "tool",
    "start": "env_start",
    "step": "env",
    "close": "env",
    "score": "reward",
    "reward": "reward",
    "retry_wait": "retry_wait",
    "branch_wait": "branch_wait",
}
_MOST_SPANS = 300
_TURNS = 4
"""Number of turns with their own metrics; later turns are combined."""
METRICS = (
    Metric(name="time/*_s", unit="seconds", per="step", rows="the step", join="sum"),
    Metric(name="tool_time/*/p95_s", unit="seconds", per="call", rows="episodes that were trained on"),
    Metric(name="tool_time/*/mean_s", unit="seconds", per="call", rows="episodes that were trained on"),
    Metric(name="turn_time/*_s", unit="seconds", per="episode", rows="episodes that had the turn"),
)


@dataclass(frozen=True, kw_only=True)
class EpisodeTime:
    """The timeline of an episode."""

    began_at: float
    """Seconds since 1970, by the clock of the machine that ran it."""
    ended_at: float
    """Time when its rows, rewards included, were ready to be stored."""
    spans: tuple[Span, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain data; keeps the longest spans if there are very many."""
        spans = [
            [s.kind, s.label, s.turn, round(s.start_s, 4), round(s.end_s, 4)] for s in longest(self.spans, _MOST_SPANS)
        ]
        return {"began_at": self.began_at, "ended_at": self.ended_at, "spans": spans}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> EpisodeTime:
        """Returns the episode of a `to_dict`."""
        spans = tuple(Span(*fields) for fields in record["spans"])
        return cls(began_at=record["began_at"], ended_at=record["ended_at"], spans=spans)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The trainer's wait for one batch."""

    began_at: float
    """Seconds since 1970, by the trainer's clock."""
    ended_at: float
    episodes: tuple[EpisodeTime, ...] = ()
    """The episodes of the batch."""


def time_ledger(
    metrics: Mapping[str, Any],
    *,
    waits: Sequence[Wait] = (),
    handing_out_s: float = 0.0,
    log_s: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Returns `time/<where>_s` of a step, in seconds.

    They sum to `timing_s/step` plus the time of validation (`timing_s/testing`, which verl does not count as part of
    the step). `time/rollout_s` replaces the split of the wait if there is no data of episodes. `time/other_s` is the
    time without a timer.

    Args:
        metrics: verl's metrics of the step; the result is empty without `timing_s/step`.
        waits: the trainer's waits for the step's batches.
        handing_out_s: time to pass the step's prompts to the workers, before verl's timers, in seconds.
        log_s: verl's timer -> its part in the trajectory log and the audit, in seconds; the key "step" is for time
            outside of all timers.
    """
    timers = {name.removeprefix("timing_s/"): float(v) for name, v in metrics.items() if name.startswith("timing_s/")}
    if "step" not in timers:
        return {}
    log_times = {name: min(s, timers.get(name, 0.0)) for name, s in (log_s or {}).items()}
    seconds_by_part: dict[str, float] = defaultdict(float)
    for timer, part in _WHERE.items():
        if timer in timers:
            seconds_by_part[part] += timers[timer] - log_times.get(timer, 0.0)
    waited = sum(timers.get(name, 0.0) - log_times.get(name, 0.0) for name in GEN_TIMERS)
    for part, seconds in _split_waits(waits, waited).items():
        seconds_by_part[part] += seconds
    if handing_out_s:
        seconds_by_part["dispatch"] += handing_out_s
    if log_times:
        seconds_by_part["logging"] = sum(log_times.values())
    seconds_by_part["other"] = max(0.0, timers["step"] - sum(seconds_by_part.values()))
    if "testing" in timers:
        seconds_by_part["validation"] = timers["testing"]
    return {f"time/{part}_s": seconds for part, seconds in seconds_by_part.items()}


def _split_waits(waits: Sequence[Wait], waited: float) -> dict[str, float]:
    """Returns the trainer's waiting time by cause; the seconds sum to `waited`."""
    if not waits or not any(wait.episodes for wait in waits):
        return {"rollout": waited}
    seconds_by_part: dict[str, float] = defaultdict(float)
    for wait in waits:
        for part, seconds in critical_path(wait).items():
            seconds_by_part[part] += seconds
    outside = waited - sum(seconds_by_part.values())
    if outside >= 0:  # before and after the wait itself: rollout engines are put to sleep
        seconds_by_part["rollout_switch"] += outside
        return seconds_by_part
    return {part: seconds * waited / (waited - outside) for part, seconds in seconds_by_part.items()}


def critical_path(wait: Wait) -> dict[str, float]:
    """Returns a wait by cause, from the spans of the episode that ended last; the seconds sum to the wait.

    `dispatch` is the time before that episode began.
    """
    duration = max(0.0, wait.ended_at - wait.began_at)
    if not wait.episodes:
        return {"rollout": duration}
    last = max(wait.episodes, key=lambda episode: episode.ended_at)
    end = min(max(last.ended_at, wait.began_at), wait.ended_at)
    begin = min(max(last.began_at, wait.began_at), end)
    own_seconds = own_times(last.spans, begin - last.began_at, end - last.began_at)
    return {**own_seconds, "dispatch": begin - wait.began_at, "poll": wait.ended_at - end}


def own_times(spans: Iterable[Span], start_s: float, end_s: float) -> dict[str, float]:
    """Returns an episode's time from `start_s` to `end_s` by kind of span; the seconds sum to the difference.

    The innermost span counts: the turn of a sub-agent, then its tool call, then the step. `loop` is the time outside of
    spans: rendering, parsing, and waiting for the event loop. Environments may add their own kinds.
    """
    inside = [span for span in spans if span.end_s > start_s and span.start_s < end_s]
    bounds = {start_s, end_s} | {t for span in inside for t in (span.start_s, span.end_s) if start_s < t < end_s}
    seconds_by_part: dict[str, float] = defaultdict(float)
    for begin, end in pairwise(sorted(bounds)):
        active = [span for span in inside if span.start_s <= begin and span.end_s >= end]
        # For equal starts (times are rounded), the inner span.
        innermost = max(active, key=lambda span: (span.start_s, span.kind != "step", -span.end_s), default=None)
        seconds_by_part["loop" if innermost is None else _OF_KIND.get(innermost.kind, "env")] += end - begin
    return dict(seconds_by_part)


def tool_times(episodes: Iterable[EpisodeTime], *, max_tools: int = 20) -> dict[str, float]:
    """Returns `tool_time/<name>/{mean,p95}_s` over the calls of each tool, for the tools with the longest total
    time."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for span in episode.spans:
            if span.kind == "tool":
                seconds[span.label].append(span.end_s - span.start_s)
    metrics = {}
    for name in sorted(seconds, key=lambda name: -sum(seconds[name]))[:max_tools]:
        metrics[f"tool_time/{name}/mean_s"] = sum(seconds[name]) / len(seconds[name])
        metrics[f"tool_time/{name}/p95_s"] = percentile(seconds[name], 0.95)
    return metrics


def turn_times(episodes: Iterable[EpisodeTime]) -> dict[str, float]:
    """Returns `turn_time/<turn>/{generate,tool,env}_s`: means over the episodes that had the turn.

    `env` is the whole step of the environment, `tool` the longest of its calls. Turns from 4 on are combined in `4+`.
    Turns of sub-agents count as part of their tool call.
    """
    sums: dict[tuple[str, str], float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for episode in episodes:
        spans = [span for span in episode.spans if span.turn >= 0 and span.label != SUB_AGENT]
        for turn in {span.turn for span in spans}:
            name = str(turn) if turn < _TURNS else f"{_TURNS}+"
            counts[name] += 1
            of_turn = [span for span in spans if span.turn == turn]
            for kind, phase in (("generate", "generate"), ("step", "env")):
                sums[name, phase] += sum(s.end_s - s.start_s for s in of_turn if s.kind == kind)
            sums[name, "tool"] += max((s.end_s - s.start_s for s in of_turn if s.kind == "tool"), default=0.0)
    return {f"turn_time/{name}/{phase}_s": total / counts[name] for (name, phase), total in sums.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least `share` of the values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
