"""Line 11: log-probs of rollout and trainer, per turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, Series, ends, key_of, keys_of, recent_mean, since
from verl_agentic.diagnostics.thresholds import (
    LATER_TURNS,
    LATER_TURNS_MIN,
    MISMATCH,
    MISMATCH_ADVICE,
    MISMATCH_PROBS,
    Limit,
)
from verl_agentic.finding import Finding, Status, unknown

_LAST = 4
_STALE_STEPS = 8
"""Steps with one version of the weights. Asynchronous trainers keep one for a few steps."""
_STALE_ADVICE = (
    "the rollout server gets no new weights, so the trained policy is never sampled: see its log, test the transfer "
    "(verl-agentic dryrun), and check actor_rollout_ref.rollout.checkpoint_engine"
)
_DIFF = "batch/log_prob_diff/"


def rollout_mismatch(run: RunEvidence) -> Finding:
    """Returns the age of the rollouts' weights, and the mean distance of the two log-probs of trained tokens."""
    if (stale := _stale_weights(run)) is not None:
        return stale
    by_turn, worst = _distances(run.sample)
    if not by_turn:
        return _from_metrics(run)
    mean = sum(total for total, _ in by_turn.values()) / sum(count for _, count in by_turn.values())
    turns = {turn: total / count for turn, (total, count) in sorted(by_turn.items())}
    listed = ", ".join(f"turn {turn}{'+' if turn == _LAST else ''} {value:.3g}" for turn, value in turns.items())
    found = f"mean |log pi_trainer - log pi_rollout| {mean:.3g}; {listed}"
    evidence: dict[str, Any] = {"mean": mean, **{f"turn_{turn}": value for turn, value in turns.items()}}
    if staleness := run.series("training/off_policy/trajectory_staleness/mean"):
        evidence["staleness"] = recent_mean(staleness)
        found += f"; rollouts are {evidence['staleness']:.2g} updates old" if evidence["staleness"] else ""
    status, advice = _judged(mean, list(turns.values()), MISMATCH)
    if status == "ok":
        return Finding(status="ok", found=found, evidence=evidence)
    return Finding(status=status, found=found, advice=advice, evidence=evidence, look_at=(worst,))


def _stale_weights(run: RunEvidence) -> Finding | None:
    """Returns that the last steps were sampled with one version of the weights."""
    episodes = run.episodes[run.episodes["weights_max"].notna()]
    newest = episodes["weights_max"].groupby(episodes["step"]).max()
    versions: Series = [(int(step), float(version)) for step, version in newest.items()]
    if not versions:  # the age in versions grows by one a step if no new one arrives
        ages = run.series("training/off_policy/trajectory_staleness/mean")
        versions = [(step, step - age) for step, age in ages]
    if not versions:
        return None
    last = versions[-1][1]
    first = since(versions, lambda version: abs(version - last) < 0.5)
    num_steps = sum(step >= (first or 0) for step, _ in versions)
    if num_steps < _STALE_STEPS:
        return None
    found = f"steps {first} to {versions[-1][0]} were sampled with the same weights (version {last:g})"
    evidence = {"version": last, "stale_steps": float(num_steps)}
    return Finding(status="fail", found=found, advice=_STALE_ADVICE, evidence=evidence, look_at=keys_of(episodes))


def _distances(records: Iterable[Mapping[str, Any]]) -> tuple[dict[int, tuple[float, int]], str]:
    """Returns turn (4 and later together) -> (sum of distances, tokens), and the row with the greatest mean."""
    by_turn: dict[int, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    worst, worst_mean = "", -1.0
    for record in records:
        columns = [record.get(name) for name in ("rollout_log_probs", "old_log_probs", "response_mask")]
        length = len(record["response_ids"])
        if any(column is None or len(column) != length for column in columns):
            continue
        rollout, trainer, mask = (np.asarray(column, dtype=np.float64) for column in columns)
        turns = np.asarray(record["turn_ids"] if len(record["turn_ids"]) == length else np.zeros(length), dtype=int)
        usable = (mask > 0) & np.isfinite(rollout) & np.isfinite(trainer)
        if not usable.any():
            continue
        distance, turns = abs(rollout - trainer)[usable], np.minimum(turns[usable], _LAST)
        if distance.mean() > worst_mean:
            worst, worst_mean = key_of(record), distance.mean()
        for turn in np.unique(turns):
            total, count = by_turn[int(turn)]
            here = distance[turns == turn]
            by_turn[int(turn)] = (total + float(here.sum()), count + len(here))
    return dict(by_turn), worst


def _from_metrics(run: RunEvidence) -> Finding:
    series, limit = run.series(f"{_DIFF}mean"), MISMATCH
    name = "mean |log pi_trainer - log pi_rollout|"
    if not series:
        series, limit = run.series("training/rollout_probs_diff_mean"), MISMATCH_PROBS
        name = "mean |pi_trainer - pi_rollout|"
    if not series:
        return unknown("log-probs of the rollout are unknown: set actor_rollout_ref.rollout.calculate_log_probs=true")
    before, now = ends(series)
    found, evidence = f"{name} {before:.2g} -> {now:.2g}", {"mean": now}
    turns = {turn.removeprefix(_DIFF): ends(run.series(turn))[1] for turn in run.names(f"{_DIFF}turn_")}
    found += "".join(f", {turn} {value:.2g}" for turn, value in turns.items())
    status, advice = _judged(now, [turns[name] for name in sorted(turns)], limit)
    if status == "ok":
        return Finding(status="ok", found=found, evidence={**evidence, **turns})
    return Finding(status=status, found=found, advice=advice, evidence={**evidence, **turns})


def _judged(mean: float, turns: Sequence[float], limit: Limit) -> tuple[Status, str]:
    """Returns status and advice for a mean distance and for the distances of turns, in order."""
    most = max((mean, *turns))
    is_later = len(turns) > 1 and most >= max(LATER_TURNS_MIN, LATER_TURNS * turns[0]) and most > turns[0]
    if limit.judge(mean) == "ok" and not is_later:
        return "ok", ""
    advice = MISMATCH_ADVICE["later_turns" if is_later else "all_turns"]
    return limit.judge(most) if limit.judge(most) != "ok" else "warn", advice
