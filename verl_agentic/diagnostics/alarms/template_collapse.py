"""Texts that no longer depend on what was asked."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.finding import Finding, warn

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
    """What is written says far less of its prompt than it did, which entropy and diversity of siblings do not tell.

    It needs `agentic.prompt_information`, which measures this every few steps.

    Args:
        history: of a run.
        fallen_to: share of the highest level that there has been. Ours, as all: the paper gives no threshold.
        retrieval_fallen_to: the same of the texts that are likeliest under their own prompt, where that is known. What
            a token says falls with the length of texts, too, but then they can be told apart as before.
        least: highest level, in nats a token, below which there never was anything to lose.
        solved: outcome from which on the alarm is silent. Only where the raw outcome is known.
        window: measurements whose median is compared.

    Paper: https://arxiv.org/abs/2604.06268
    """
    outcome = history.level("episode/acc", window)
    now, best = history.level(_INFORMATION, window), history.best(_INFORMATION, window)
    if now is None or best is None or best < least or now > fallen_to * best:
        return None
    retrieval, most = history.level(_RETRIEVAL, window), history.best(_RETRIEVAL, window)
    are_told_apart = retrieval is not None and most is not None and retrieval > retrieval_fallen_to * most
    if are_told_apart or (outcome is not None and outcome >= solved):
        return None
    return warn(
        found=f"a token says {now:.3g} nats of its prompt, {best:.3g} at best (limit {fallen_to:.0%} of it)",
        evidence={
            "information_per_token": now,
            "best": best,
            **({} if retrieval is None else {"retrieval": retrieval}),
        },
        advice="train on groups with a spread only (agentic.sampling.gates=[void_groups,{name: "
        "top_p_signal, p: 0.9}]), weaken what pulls regardless of the reward (actor_rollout_ref.actor.kl_loss_coef, "
        "actor_rollout_ref.actor.entropy_coeff), or go back to the checkpoint before it began",
    )
