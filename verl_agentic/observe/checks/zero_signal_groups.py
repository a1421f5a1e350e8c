"""Alarm: groups without a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import ORDER, Judgement, Limit
from verl_agentic.observe.diagnosis.history import History, first_of
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_LIMITS = {
    "all_0": Limit(warn=0.7, fail=0.95),
    "all_1": Limit(warn=0.8, fail=0.95),
    "zero_signal": Limit(warn=0.9, fail=0.95),
}
_SOLVED_AT_FIRST = 0.95
"""Outcome of the first step from which on the grader is suspected."""
_ADVICE = {
    "all_0": "the tasks are too hard: use easier ones (agentic.curriculum), a checkpoint after SFT, more siblings "
    "(actor_rollout_ref.rollout.n) or turns (agentic.limits.max_turns), or reward "
    "progress (agentic.rubric.components); the gate zero_variance drops such groups",
    "all_1": "the tasks are too easy: use harder ones (agentic.curriculum), or end the run; the gate zero_variance "
    "drops such groups",
    "solved_at_first": "nearly all tasks are solved from the first step on, so first test the grader on wrong answers "
    "(verl-agentic reward audit, verl-agentic env validate): it may pay everything. If it is right, the tasks are too "
    "easy: use harder ones (agentic.curriculum)",
    "other": "all siblings have the same reward: check that the scorer reads the episode (agentic.rubric), and that "
    "siblings are sampled (actor_rollout_ref.rollout.temperature above 0)",
    "mixed": "drop such groups and refill: agentic.sampling.gates=[void_groups,zero_variance], and "
    "spread the difficulty (agentic.curriculum.name=learnability)",
}
"""By the most frequent result."""


def _describe_flat_groups(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    spread = run.valid.groupby(["step", "uid"])["reward"].transform("std", ddof=0)
    return "", keys_of(run.valid[spread == 0], count=1)


@alarm(
    reads=("credit/zero_signal_group_frac|batch/zero_signal_group_frac",),
    also=tuple(
        f"{source}/{kind}_group_frac" for source in ("credit", "batch") for kind in ("all_0", "all_1", "other_constant")
    ),
    details=_describe_flat_groups,
)
def zero_signal_groups(
    history: History,
    *,
    all_0: float = _LIMITS["all_0"].warn,
    all_1: float = _LIMITS["all_1"].warn,
    zero_signal: float = _LIMITS["zero_signal"].warn,
    window: int = 5,
) -> Finding | None:
    """Most groups have siblings of one result, which give no advantage. All 0 and all 1 have their own limits.

    Args:
        all_0: share of groups without a success. At 0.7, only three groups in ten give a signal.
        all_1: share of groups without a failure; higher, because a good policy reaches it.
        zero_signal: share of groups of one result, whatever it is.
        window: steps whose median is compared.
    """
    shares = {
        kind: history.level(first_of(f"credit/{kind}_group_frac", f"batch/{kind}_group_frac"), window) or 0.0
        for kind in (*_LIMITS, "other_constant")
    }
    limits = {"all_0": all_0, "all_1": all_1, "zero_signal": zero_signal}
    statuses: dict[str, Judgement] = {
        kind: limit.judge(shares[kind], warn=limits[kind]) for kind, limit in _LIMITS.items()
    }
    over = next((kind for kind, status in statuses.items() if status != "ok"), "zero_signal")
    result = over
    if over == "zero_signal":
        result = "other" if shares["other_constant"] > max(shares["all_0"], shares["all_1"]) else "mixed"
    elif over == "all_1" and max(history.first("episode/acc", 1), default=0.0) >= _SOLVED_AT_FIRST:
        result = "solved_at_first"
    return judged(
        max(statuses.values(), key=ORDER.index),
        found=f"{shares['zero_signal']:.0%} of the groups have siblings of one result (all 0: {shares['all_0']:.0%}, "
        f"all 1: {shares['all_1']:.0%}); {over} must stay below {limits[over]:.0%}",
        evidence={f"{kind}_group_frac": share for kind, share in shares.items()},
        advice=_ADVICE[result],
        check=result,
    )
