"""Alarm: log-probs of rollout and trainer differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.diagnosis.record_metrics import token_distances
from verl_agentic.observe.diagnosis.row_keys import key_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_NATS, _DIFFERENCE = Limit(warn=0.05, fail=0.3), Limit(warn=0.03, fail=0.1)
_ADVICE = {
    "all_turns": "make engines agree: the same weights, dtype (actor_rollout_ref.rollout.dtype) and temperature, "
    "top_p=1, top_k=-1; correct for the rest (algorithm.rollout_correction.rollout_is=token); if samples are old "
    "(training/off_policy/*), use trainer.v1.trainer_mode=sync",
    "later_turns": "only later turns differ, because their context differs from the rollout's. Pass token ids and do "
    "not encode text again (agent loop env_agent); look at the first tokens after an observation in the viewer. "
    "Possible causes: a chat template that strips reasoning from earlier turns, or another tool parser",
}
_MEAN, _PROBS = "batch/log_prob_diff/mean", "training/rollout_probs_diff_mean"
_TURNS = "batch/log_prob_diff/turn_*"


def _describe_worst_row(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    means = {key_of(record): distances.mean() for record in run.sample if len(distances := token_distances(record)[0])}
    return "", (max(means, key=lambda key: means[key]),) if means else ()


@alarm(reads=(f"{_MEAN}|{_PROBS}",), also=(_MEAN, _TURNS, "batch/log_prob_diff/max"), details=_describe_worst_row)
def rollout_mismatch(
    history: History,
    *,
    mean: float = _NATS.warn,
    probs: float = _DIFFERENCE.warn,
    later_turns: float = 4.0,
    least: float = 0.03,
    window: int = 5,
) -> Finding | None:
    """Trainer and rollout give sampled tokens different probabilities, in all turns or in later turns only.

    Args:
        mean: nats, mean of |log pi_train - log pi_rollout| over sampled tokens; correct engines in bfloat16 differ by
            0.005 to 0.02.
        probs: the same for probabilities (verl's `training/rollout_probs_diff_mean`), if there are no log-probs.
        later_turns: maximum ratio of a later turn's difference to the first turn's. A wrong token at a turn's boundary
            shifts all tokens after it.
        least: nats; smaller differences of later turns are noise.
        window: steps whose median is compared.
    """
    of_nats, first = history.level(_MEAN, window), history.level("batch/log_prob_diff/turn_0", window)
    turns = {name: history.level(name, window) or 0.0 for name in history.matching(_TURNS)}
    worst = max(turns, key=lambda name: turns[name], default="")
    evidence: dict[str, float | str] = {name.rsplit("/", 1)[-1]: value for name, value in turns.items()}
    if worst and first is not None and turns[worst] >= max(least, later_turns * first) and turns[worst] > first:
        turn = worst.split("turn_")[-1].replace("_plus", " and later")
        status = _NATS.judge(turns[worst])
        return judged(
            "warn" if status == "ok" else status,
            found=f"log-probs of trainer and rollout differ by {turns[worst]:.3g} nats in turn {turn} and by "
            f"{first:.3g} in the first (limit {later_turns:g} times that, from {least:g} on)",
            evidence=evidence,
            advice=_ADVICE["later_turns"],
            check="later_turns",
        )
    if of_nats is not None:
        value, limit, unit, status = of_nats, mean, " nats", _NATS.judge(of_nats, warn=mean)
    elif (value := history.level(_PROBS, window)) is not None:
        limit, unit, status = probs, "", _DIFFERENCE.judge(value, warn=probs)
    else:
        return None
    return judged(
        status,
        found=f"trainer and rollout differ by {value:.3g}{unit} per sampled token (limit {limit:g})",
        evidence={"mean_difference": value, **evidence},
        advice=_ADVICE["all_turns"],
        check="all_turns",
    )
