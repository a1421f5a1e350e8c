"""Alarm: the policy diverges."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.diagnostics.thresholds import KL_ADVICE, KL_REFERENCE, KL_ROLLOUT, KL_UPDATE
from verl_agentic.finding import Finding, warn

_REFERENCE = "batch/ref_kl"


@alarm(reads=(f"{_REFERENCE}|actor/ppo_kl|batch/approx_kl",))
def kl_blowup(
    history: History,
    *,
    reference: float = KL_REFERENCE.warn,
    update: float = KL_UPDATE.warn,
    rollout: float = KL_ROLLOUT.warn,
    window: int = 5,
) -> Finding | None:
    """The policy is far from its reference, from itself before the update, or from the rollout policy.

    Args:
        reference: nats per token, of the KL to the reference policy (`batch/ref_kl`); healthy runs stay near 0.1 or
            below.
        update: nats per token, of one step's updates; PPO's usual targets are 0.01 to 0.02.
        rollout: mean of (rho - 1) - ln rho, rho the ratio of the trainer's probability to that of the rollout.
        window: steps whose median is compared.
    """
    found = {
        "reference": (history.level(_REFERENCE, window), reference),
        # verl's estimate is a mean of log-ratios, which may be below 0.
        "update": (
            history.level(lambda row: abs(row["actor/ppo_kl"]) if "actor/ppo_kl" in row else None, window),
            update,
        ),
        "rollout": (history.level("batch/approx_kl", window), rollout),
    }
    over = {name: (value, limit) for name, (value, limit) in found.items() if value is not None and value >= limit}
    if not over:
        return None
    kind = next(iter(over))
    named = {
        "reference": "its reference",
        "update": "itself before the update",
        "rollout": "the rollout policy",
    }
    listed = ", ".join(f"{value:.3g} from {named[name]} (limit {limit:g})" for name, (value, limit) in over.items())
    return warn(
        found=f"the policy is at a KL per token of {listed}",
        evidence={f"kl_{name}": value for name, (value, _) in found.items() if value is not None},
        advice=KL_ADVICE[kind],
        check=kind,
    )
