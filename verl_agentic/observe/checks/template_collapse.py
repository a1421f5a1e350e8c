"""Alarm: texts no longer depend on the prompt."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_INFORMATION, _RETRIEVAL = "batch/prompt_information_per_token", "batch/prompt_retrieval"


@alarm(reads=(_INFORMATION,), also=(_RETRIEVAL, "episode/acc"), patience=1)
def template_collapse(
    history: History,
    *,
    fallen_to: float = 0.3,
    retrieval_fallen_to: float = 0.8,
    least: float = 0.01,
    solved: float = 0.9,
    window: int = 3,
) -> Finding | None:
    """Texts depend far less on their prompt than before, which entropy and diversity of siblings do not show.

    Needs `agentic.prompt_information`.

    Args:
        fallen_to: share of the highest level so far. All thresholds are ours: the paper gives none.
        retrieval_fallen_to: the same for the share of texts that are likeliest under their own prompt. The information
            of a token also falls with the length of texts, but that share does not.
        least: minimum highest level, in nats per token, for an alarm.
        solved: outcome from which on the alarm is silent, if the raw outcome is known.
        window: measurements whose median is compared.

    Paper: https://arxiv.org/abs/2604.06268
    """
    outcome = history.level("episode/acc", window)
    now, best = history.level(_INFORMATION, window), history.best(_INFORMATION, window)
    if now is None or best is None or best < least or now > fallen_to * best:
        return None
    retrieval, best_retrieval = history.level(_RETRIEVAL, window), history.best(_RETRIEVAL, window)
    are_told_apart = (
        retrieval is not None and best_retrieval is not None and retrieval > retrieval_fallen_to * best_retrieval
    )
    if are_told_apart or (outcome is not None and outcome >= solved):
        return None
    return warn(
        found=f"a token has {now:.3g} nats of information about its prompt, {best:.3g} at best (limit {fallen_to:.0%} "
        "of it)",
        evidence={
            "information_per_token": now,
            "best": best,
            **({} if retrieval is None else {"retrieval": retrieval}),
        },
        advice="train only on groups with different rewards "
        "(agentic.sampling.gates=[void_groups,{name: top_p_signal, p: 0.9}]), weaken terms that do "
        "not depend on the reward (actor_rollout_ref.actor.kl_loss_coef, actor_rollout_ref.actor.entropy_coeff), or "
        "resume from an earlier checkpoint",
    )
