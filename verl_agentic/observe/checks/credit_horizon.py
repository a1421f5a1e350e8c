"""Check: correlation of credit between turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.turn_variance import turn_correlation, variance_of_sum

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_LONG, _SAME = 8, 0.9


@record_check
def credit_horizon(run: RunEvidence) -> Finding:
    """Returns how much correlated credit increases the variance of an episode's summed advantages."""
    credits = [credit for record in run.sample if len(credit := turn_credit(record)) > 1]
    (num_turns, count), *_ = Counter(map(len, credits)).most_common(1) or [(0, 0)]
    if count < 2:
        return unknown("no two trained episodes have the same number of turns, two or more")
    variance, correlation = turn_correlation([credit for credit in credits if len(credit) == num_turns])
    if not variance:
        return unknown(f"all of {count} episodes of {num_turns} turns have the same credit")
    factor = variance_of_sum(num_turns, variance=1.0, correlation=correlation) / num_turns
    evidence = {"turns": num_turns, "episodes": count, "variance": variance, "correlation": correlation}
    message = (
        f"in {count} episodes of {num_turns} turns, advantages of two turns are correlated by {correlation:.2f}: the "
        f"variance of their sum is {factor:.1f}x that of independent turns"
    )
    if num_turns < _LONG or correlation < _SAME:
        return Finding(status="ok", found=message, evidence=evidence)
    return Finding(
        status="warn",
        found=message,
        advice="give turns their own credit: algorithm.adv_estimator=turn_group, gigpo or salt, or turn_gae with a "
        "critic",
        evidence=evidence,
    )


def turn_credit(record: Mapping[str, Any]) -> list[float]:
    """Returns the mean advantage on the sampled tokens of every turn of a training row; empty without advantages."""
    if record.get("advantages") is None:
        return []
    advantages, mask = np.asarray(record["advantages"], dtype=np.float64), np.asarray(record["response_mask"]) == 1
    turns: dict[int, list[float]] = {}
    for segment in record["segments"] or ():
        span = slice(segment["start"], segment["end"])
        turns.setdefault(segment["turn"], []).extend(advantages[span][mask[span]].tolist())
    return [float(np.mean(values)) for _, values in sorted(turns.items()) if values]
