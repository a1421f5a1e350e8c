"""Checks whether log-probs of rollout and trainer are comparable."""

from __future__ import annotations


def truncation_warning(*, top_p: float, top_k: int, uses_rollout_log_probs: bool) -> str | None:
    """Returns a warning if truncated sampling biases importance weights, else None.

    With `top_p` below 1 or a positive `top_k`, a server samples from the most likely tokens and normalises log-probs
    over them (verl's `logprobs_mode: processed_logprobs`). Trainers normalise over the whole vocabulary. So the ratio
    `pi_train / pi_rollout` is too low by the cut mass, which differs per token.

    Args:
        top_p: `rollout.top_p`.
        top_k: `rollout.top_k`; -1 or 0 for none.
        uses_rollout_log_probs: whether a loss corrects by these log-probs (`algorithm.rollout_correction`, its
            `bypass_mode`, replayed rows).
    """
    if not uses_rollout_log_probs or (top_p >= 1 and top_k <= 0):
        return None
    return (
        f"importance weights need samples of the whole distribution, got top_p={top_p} and top_k={top_k}: rollout "
        "log-probs are those of the truncated one; set actor_rollout_ref.rollout.top_p=1.0 and top_k=-1, or switch "
        "algorithm.rollout_correction off"
    )
