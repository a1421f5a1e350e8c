"""Alarm: log-probs of rollout and trainer differ."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.diagnostics.thresholds import LATER_TURNS, LATER_TURNS_MIN, MISMATCH, MISMATCH_ADVICE, MISMATCH_PROBS
from verl_agentic.finding import Finding, warn

_MEAN, _PROBS = "batch/log_prob_diff/mean", "training/rollout_probs_diff_mean"
_TURNS = "batch/log_prob_diff/turn_*"


@alarm(reads=(f"{_MEAN}|{_PROBS}",), also=(_MEAN, _TURNS, "batch/log_prob_diff/max"))
def rollout_mismatch(
    history: History,
    *,
    mean: float = MISMATCH.warn,
    probs: float = MISMATCH_PROBS.warn,
    later_turns: float = LATER_TURNS,
    least: float = LATER_TURNS_MIN,
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
    found, first = history.level(_MEAN, window), history.level("batch/log_prob_diff/turn_0", window)
    turns = {name: history.level(name, window) or 0.0 for name in history.matching(_TURNS)}
    worst = max(turns, key=lambda name: turns[name], default="")
    evidence: dict[str, float | str] = {name.rsplit("/", 1)[-1]: value for name, value in turns.items()}
    if worst and first is not None and turns[worst] >= max(least, later_turns * first) and turns[worst] > first:
        turn = worst.split("turn_")[-1].replace("_plus", " and later")
        return warn(
            found=f"log-probs of trainer and rollout differ by {turns[worst]:.3g} nats in turn {turn} and by "
            f"{first:.3g} in the first (limit {later_turns:g} times that, from {least:g} on)",
            evidence=evidence,
            advice=MISMATCH_ADVICE["later_turns"],
            check="later_turns",
        )
    value, limit, unit = (found, mean, "nats") if found is not None else (history.level(_PROBS, window), probs, "")
    if value is None or value < limit:
        return None
    return warn(
        found=f"trainer and rollout differ by {value:.3g} {unit}".rstrip() + f" per sampled token (limit {limit:g})",
        evidence={"mean_difference": value, **evidence},
        advice=MISMATCH_ADVICE["all_turns"],
        check="all_turns",
    )
