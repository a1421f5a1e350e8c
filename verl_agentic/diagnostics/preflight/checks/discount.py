"""Whether an outcome reaches the beginning of an episode, where a discount is set."""

from __future__ import annotations

from verl_agentic.algorithms.discounting import discount_complaint
from verl_agentic.diagnostics.preflight.planned import PlannedRun
from verl_agentic.diagnostics.preflight.result import Verdict, ok, warn

_OF_TOKENS = {"gae", "reinforce_plus_plus"}
"""Estimators that discount by `algorithm.gamma`, token by token."""


def discount(run: PlannedRun) -> list[Verdict]:
    """Returns what the discount leaves of an outcome; nothing for estimators that do not discount tokens."""
    name, gamma = run.get("algorithm.adv_estimator"), run.number("algorithm.gamma", 1.0)
    if name not in _OF_TOKENS or gamma == 1:
        return []
    tokens = int(run.number("data.max_response_length"))
    complaint = discount_complaint(gamma=gamma, steps=tokens) if 0 <= gamma < 1 and tokens > 0 else None
    if complaint is None:
        return [ok(f"gamma {gamma} leaves enough of an outcome after {tokens} tokens")]
    return [warn(complaint, "set algorithm.gamma=1, or an estimator that discounts turns (turn_gae)")]
