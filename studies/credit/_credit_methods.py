"""Methods to compare, and ablations of them that must do worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DYNAMIC = ("agentic.sampling.gates=[zero_variance]",)
_SHAPED = (
    "agentic.rubric.components=[{use: math, weight: 1.0, options: {must_be_evaluated: true}}, "
    f"{{use: '{Path(__file__).parent / '_credit_judge.py'}:style', weight: 0.2}}]",
)
_FRAGILE = (
    "agentic.limits.max_retries=0",
    "agentic.max_void_share=1",
)


@dataclass(frozen=True, kw_only=True)
class Method:
    """Something that trains."""

    name: str
    title: str
    overrides: tuple[str, ...] = ()
    """Overrides of the recipe."""
    modules: tuple[str, ...] = ()
    """Modules that verl loads in every process, in addition to the trainer that counts tokens."""
    needs_critic: bool = False


def _estimator(name: str) -> str:
    return f"algorithm.adv_estimator={name}"


METHODS = (
    Method(name="grpo", title="GRPO (verl's)"),
    Method(
        name="dr_grpo",
        title="Dr. GRPO",
        overrides=(
            _estimator("dr_grpo"),
            "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
            "actor_rollout_ref.actor.loss_scale_factor=${data.max_response_length}",
        ),
    ),
    Method(name="rloo", title="RLOO (`safe_rloo`)", overrides=(_estimator("safe_rloo"),)),
    Method(
        name="turn_gae",
        title="turn-level GAE, with a critic",
        overrides=(_estimator("turn_gae"), "critic.enable=true", "critic.optim.lr=1e-3"),
        needs_critic=True,
    ),
    Method(name="gigpo", title="GiGPO", overrides=(_estimator("gigpo"),)),
    Method(name="dynamic", title="GRPO, dynamic sampling", overrides=_DYNAMIC),
    Method(name="curriculum", title="GRPO, curriculum", overrides=("agentic.curriculum.name=learnability",)),
    Method(name="salt", title="SALT", overrides=(_estimator("salt"),)),
)

ABLATIONS = (
    Method(
        name="all_tokens",
        title="GRPO, observation mask off",
        overrides=("agentic.audit=off",),
        modules=("_credit_all_tokens",),
    ),
    Method(
        name="failures_void",
        title="GRPO, lost sandboxes: void",
        overrides=_FRAGILE,
        modules=("_credit_failures",),
    ),
    Method(
        name="failures_score_0",
        title="GRPO, lost sandboxes: scored 0",
        overrides=_FRAGILE,
        modules=("_credit_failures", "_credit_failures_score_0"),
    ),
    Method(name="shaped_filter_acc", title="shaped reward, filter on `acc`", overrides=(*_DYNAMIC, *_SHAPED)),
    Method(
        name="shaped_filter_reward",
        title="shaped reward, filter on the reward",
        overrides=(*_DYNAMIC, *_SHAPED),
        modules=("_credit_shaped_filter",),
    ),
)


def named(names: Sequence[str]) -> list[Method]:
    """Returns methods and ablations by name."""
    known = {method.name: method for method in (*METHODS, *ABLATIONS)}
    return [known[name] for name in names]
