"""The type and the registry of advantage estimators. An estimator is a function of a batch with a decorator:

@advantage()
def group_baseline(batch: CreditBatch, *, scale: float = 1.0) -> Tensor:
    return batch.to_tokens(...)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import BatchFunction, Registry
from verl_agentic.credit.credit.batch import Advantages, CreditBatch, first_tokens, first_valid_rows

Step = Literal["token", "turn"]
_SOURCES = {
    "rollout_log_probs_BT": "set actor_rollout_ref.rollout.calculate_log_probs=true",
    "values_BT": "set critic.enable=true",
    "old_log_probs_BT": "set algorithm.rollout_correction.bypass_mode=false",
}
_OF_OUR_TRAINERS = (
    "verl's own trainers do not hand it over: set trainer.v1.trainer_mode to agentic_sync (agentic_colocate_async, "
    "agentic_separate_async) and play episodes with env_agent"
)
_ALWAYS_THERE = {"values_BT", "old_log_probs_BT", "rollout_log_probs_BT"}
"""Columns that every trainer passes on."""
_VERLS_IN_NEED = {"gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}
"""Estimators of verl's that its own V1 trainers do not give what they need; `verl.trainer.trainers` does."""
OPTIONAL = frozenset(f.name for f in fields(CreditBatch) if f.default is None) | {"parts"}
"""Columns that a batch may lack."""


@dataclass(frozen=True, kw_only=True)
class AdvantageType(BatchFunction):
    """An advantage estimator."""

    what = "estimator"
    needs_critic: bool
    accepts: frozenset[str] = frozenset()
    """Optional columns that the estimator uses if they are there."""
    compares_siblings: bool = False
    """Whether a session alone in its group gets no signal, so that `rollout.n` must be above 1."""
    unless: Mapping[str, Any] = field(default_factory=dict)
    """Option -> the value with which such a session gets a signal."""
    discounts: Mapping[str, Step] = field(default_factory=dict)
    """Name of a discount option -> its step: `token` or `turn`."""

    def discount_of(self, options: Mapping[str, Any], step: Step) -> float:
        """Returns the discount per step of this kind; 1 if there is none."""
        named = [name for name, discount_step in self.discounts.items() if discount_step == step]
        defaults = inspect.signature(self.function).parameters
        return math.prod(float(options.get(name, defaults[name].default)) for name in named)

    def compares(self, options: Mapping[str, Any]) -> bool:
        """Returns whether a session alone in its group gets no signal with these options."""
        return self.compares_siblings and not any(options.get(name) == value for name, value in self.unless.items())

    def __call__(self, batch: CreditBatch, **options: Any) -> Advantages:
        """Returns the advantages of a batch; masked tokens and void rows get 0.

        The estimator sees each session as a chain of its own rows (`CreditBatch.chain`). All tokens of a sub-agent's
        row get one advantage: that of the first sampled token of the session. These rows do not train the critic.

        Raises:
            ConfigError: an option is unknown, or the batch lacks a required column.
        """
        self.check_options(options)
        if missing := self.missing_columns(batch):
            advice = "; ".join(dict.fromkeys(_SOURCES.get(name, _OF_OUR_TRAINERS) for name in missing))
            raise ConfigError(f"estimator {self.name!r} needs {missing}, got none; {advice}")
        if not batch.mask_BT.shape[-1]:
            return Advantages(advantages_BT=batch.rewards_BT, returns_BT=batch.rewards_BT)
        with torch.no_grad():
            chain = batch.chain()
            estimates = self.function(chain, **options)
            if not isinstance(estimates, Advantages):
                estimates = Advantages(advantages_BT=estimates, returns_BT=estimates)
            return estimates if chain is batch else _with_sub_agents(estimates, batch, chain)


def advantage(
    *,
    needs: tuple[str, ...] = (),
    accepts: tuple[str, ...] = (),
    compares_siblings: bool = False,
    unless: Mapping[str, Any] | None = None,
    discounts: Mapping[str, Step] | None = None,
) -> Callable[[Callable[..., Any]], AdvantageType]:
    """Makes an estimator of a function `(batch, *, options) -> [B, T] advantages | Advantages`.

    Args:
        needs: optional columns of `CreditBatch` that the estimator requires.
        accepts: optional columns that it uses if they are there. `agentic.critic.target` is refused for an estimator
            that does not accept `target_values_BT`.
        compares_siblings: whether a session alone in its group gets no signal.
        unless: option -> the value with which such a session gets a signal.
        discounts: name of a discount option -> its step.
    """
    assert {*needs, *accepts} <= OPTIONAL, (needs, accepts)

    def make(function: Callable[..., Any]) -> AdvantageType:
        return AdvantageType(
            name=function.__name__,
            function=function,
            needs=frozenset(needs),
            needs_critic="values_BT" in needs,
            accepts=frozenset(accepts),
            compares_siblings=compares_siblings,
            unless=dict(unless or {}),
            discounts=dict(discounts or {}),
        )

    return make


_REGISTRY = Registry[AdvantageType](
    package="verl_agentic.credit.advantages",
    extensions=("verl_agentic.methods.advantages",),
    what="advantage estimator",
    kind=AdvantageType,
    decorator="advantage",
    others="one of verl's, ",
)
load_advantage, advantage_names, is_advantage = _REGISTRY.load, _REGISTRY.names, _REGISTRY.has


def columns_of_advantage(name: str) -> frozenset[str]:
    """Returns the optional columns that an estimator needs or takes; empty for verl's estimators."""
    if not is_advantage(name):
        return frozenset()
    estimator = load_advantage(name)
    return estimator.needs | estimator.accepts


def needs_our_trainer(name: str) -> bool:
    """Tells whether an estimator needs columns that only the trainers `agentic_*` pass on.

    Raises:
        ConfigError: an address leads to no estimator.
    """
    return bool(load_advantage(name).needs - _ALWAYS_THERE) if is_advantage(name) else name in _VERLS_IN_NEED


def _with_sub_agents(estimates: Advantages, batch: CreditBatch, chain: CreditBatch) -> Advantages:
    """Adds the advantages of the rows outside of the chain."""
    is_beside_BT = batch.mask_BT & (batch.valid_B & ~batch.is_chained_B).unsqueeze(-1)
    rows_N = first_valid_rows(chain)
    tokens_N = first_tokens(chain.mask_BT[rows_N])

    def laid_on(column_BT: Tensor, values_S: Tensor | None) -> Tensor:
        if values_S is None:
            values_S = column_BT.new_zeros(batch.num_sessions)
            values_S[batch.session_B[rows_N]] = column_BT[rows_N, tokens_N]
        return torch.where(is_beside_BT, values_S.to(column_BT.dtype)[batch.session_B].unsqueeze(-1), column_BT)

    advantages_BT = laid_on(estimates.advantages_BT, estimates.sessions_S)
    returns_BT = advantages_BT
    if estimates.returns_BT is not estimates.advantages_BT:
        returns_BT = laid_on(estimates.returns_BT, None)
        if batch.values_BT is not None:
            returns_BT = torch.where(is_beside_BT, batch.values_BT.float(), returns_BT)
    return replace(estimates, advantages_BT=advantages_BT, returns_BT=returns_BT)
