"""Texts that no longer depend on what was asked."""

from __future__ import annotations

from verl_agentic.diagnostics.alarm import History, Seen, alarm

_INFORMATION, _RETRIEVAL = "batch/prompt_information_per_token", "batch/prompt_retrieval"


@alarm(reads=(_INFORMATION,), also=(_RETRIEVAL, "episode/acc"), patience=1)
def template_collapse(history: History, *, fallen_to: float = 0.3, solved: float = 0.9, window: int = 3) -> Seen | None:
    """What is written says far less of its prompt than it did, which entropy and diversity of siblings do not tell.

    It needs `algorithm.prompt_information`, which measures this every few steps.

    Args:
        history: of a run.
        fallen_to: share of the highest level that there has been. Ours: the paper gives no threshold.
        solved: outcome from which on the alarm is silent. Only where the raw outcome is known.
        window: measurements whose median is compared.

    Paper: https://arxiv.org/abs/2604.06268
    """
    outcome = history.level("episode/acc", window)
    now, best = history.level(_INFORMATION, window), history.best(_INFORMATION, window)
    if now is None or best is None or now > fallen_to * best or (outcome is not None and outcome >= solved):
        return None
    retrieval = history.level(_RETRIEVAL, window)
    return Seen(
        what=f"a token says {now:.3g} nats of its prompt, {best:.3g} at best (limit {fallen_to:.0%} of it)",
        evidence={
            "information_per_token": now,
            "best": best,
            **({} if retrieval is None else {"retrieval": retrieval}),
        },
        advice="train on groups with a spread only (trainer.v1.sampler.sampler_kwargs.gates=[void_groups,{name: "
        "top_p_signal, p: 0.9}]), weaken what pulls regardless of the reward (actor_rollout_ref.actor.kl_loss_coef, "
        "actor_rollout_ref.actor.entropy_coeff), or go back to the checkpoint before it began",
    )
