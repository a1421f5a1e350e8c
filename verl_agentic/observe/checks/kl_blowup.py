"""Alarm: the policy diverges."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import ORDER, Judgement, Limit
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_LIMITS = {
    "reference": Limit(warn=0.5, fail=10.0),
    "update": Limit(warn=0.1, fail=0.5),
    "rollout": Limit(warn=0.1, fail=0.5),
}
_NAMES = {"reference": "its reference", "update": "itself before the update", "rollout": "the rollout policy"}
_SLOWER = (
    "lower actor_rollout_ref.actor.optim.lr or actor_rollout_ref.actor.ppo_epochs, or make mini-batches larger "
    "(actor_rollout_ref.actor.ppo_mini_batch_size)"
)
_ADVICE = {
    "reference": "hold the policy closer (actor_rollout_ref.actor.kl_loss_coef, "
    "actor_rollout_ref.actor.use_kl_loss=true), " + _SLOWER,
    "update": _SLOWER,
    "rollout": "see rollout_mismatch, which looks the same; correct for old samples "
    "(algorithm.rollout_correction.rollout_is=token), or avoid them (trainer.v1.trainer_mode=sync)",
}


@alarm(reads=("batch/ref_kl|actor/ppo_kl|batch/approx_kl",))
def kl_blowup(
    history: History,
    *,
    reference: float = _LIMITS["reference"].warn,
    update: float = _LIMITS["update"].warn,
    rollout: float = _LIMITS["rollout"].warn,
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
    measured = {
        "reference": history.level("batch/ref_kl", window),
        # verl's estimate is a mean of log-ratios, which may be below 0.
        "update": history.level(lambda row: abs(row["actor/ppo_kl"]) if "actor/ppo_kl" in row else None, window),
        "rollout": history.level("batch/approx_kl", window),
    }
    values = {name: value for name, value in measured.items() if value is not None}
    if not values:
        return None
    limits = {"reference": reference, "update": update, "rollout": rollout}
    statuses: dict[str, Judgement] = {
        name: _LIMITS[name].judge(value, warn=limits[name]) for name, value in values.items()
    }
    worst = max(statuses, key=lambda name: ORDER.index(statuses[name]))
    listed = [name for name in values if statuses[name] != "ok"] or list(values)
    distances = ", ".join(f"{values[name]:.3g} from {_NAMES[name]} (limit {limits[name]:g})" for name in listed)
    return judged(
        statuses[worst],
        found=f"the policy is at a KL per token of {distances}",
        evidence={f"kl_{name}": value for name, value in values.items()},
        advice=_ADVICE[worst],
        check=worst,
    )
