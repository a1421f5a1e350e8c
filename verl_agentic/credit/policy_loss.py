"""The type and the registry of policy losses. A policy loss is a function of a micro-batch with a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import BatchFunction, Registry
from verl_agentic.credit.aggregate import as_floats


@dataclass(frozen=True, kw_only=True)
class LossBatch:
    """A micro-batch: B rows, T response tokens, padded at the right.

    Only `log_prob_BT`, `entropy_BT` and `top_log_prob_BTK` carry gradients.
    """

    log_prob_BT: Tensor
    """`[B, T]` float: log-probs under the policy that is updated."""
    old_log_prob_BT: Tensor
    """`[B, T]` float: log-probs under the policy before this step's updates."""
    advantages_BT: Tensor
    """`[B, T]` float"""
    mask_BT: Tensor
    """`[B, T]` bool: true on tokens that the policy sampled."""
    clip_low: float = 0.2
    """verl's `actor.clip_ratio_low`."""
    clip_high: float = 0.2
    """verl's `actor.clip_ratio_high`."""
    clip_dual: float = 3.0
    """verl's `actor.clip_ratio_c`: bound of the loss of tokens with negative advantages."""

    is_weights_BT: Tensor | None = None
    """`[B, T]` float: verl's rollout correction (importance weights between trainer and rollout)."""
    ref_log_prob_BT: Tensor | None = None
    """`[B, T]` float: log-probs under the reference policy."""
    rollout_log_prob_BT: Tensor | None = None
    """`[B, T]` float: log-probs under the policy that sampled."""
    entropy_BT: Tensor | None = None
    """`[B, T]` float: entropy of the policy that is updated."""
    values_BT: Tensor | None = None
    """`[B, T]` float: the critic's values."""
    group_B: Tensor | None = None
    """`[B]` int64: number of the row's prompt."""
    session_B: Tensor | None = None
    """`[B]` int64: number of the row's session."""
    group_size_B: Tensor | None = None
    """`[B]` int64: number of rows of the row's group in the whole batch."""
    outcome_B: Tensor | None = None
    """`[B]` float: raw outcome (`acc`) of the row's session."""
    positive_share_B: Tensor | None = None
    """`[B]` float: share of the whole batch's sampled tokens that lie in successes; equal for all rows."""
    is_external_B: Tensor | None = None
    """`[B]` bool: rows that another policy wrote (demonstrations)."""
    turn_ids_BT: Tensor | None = None
    """`[B, T]` int64: turn of every token."""
    mean_log_ratio_BT: Tensor | None = None
    """`[B, T]` float: mean over the vocabulary of `log pi - log pi_old` at the position of the token."""
    teacher_log_prob_BT: Tensor | None = None
    """`[B, T]` float: log-probs of the tokens under the teacher (self-distillation)."""
    top_log_prob_BTK: Tensor | None = None
    """`[B, T, K]` float: log-probs of the K most likely tokens at every place, with gradient."""
    teacher_top_log_prob_BTK: Tensor | None = None
    """`[B, T, K]` float: log-probs of these tokens under the teacher."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The result of a policy loss: one of the two tensors, and metrics."""

    per_token_BT: Tensor | None = None
    """`[B, T]` float: aggregated over sampled tokens as `actor.loss_agg_mode` says."""
    per_row_B: Tensor | None = None
    """`[B]` float: averaged over the rows of the whole mini-batch."""
    is_shared: bool = False
    """Whether the rows of a session share one loss, so that sessions weigh the same whatever their number of rows."""
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)
    """Name -> scalar. Leave tensors on their device: the call of the loss reads all of them at once."""


OPTIONAL = frozenset(f.name for f in fields(LossBatch) if f.default is None)
"""Columns that a micro-batch may lack."""


@dataclass(frozen=True, kw_only=True)
class PolicyLossType(BatchFunction):
    what = "policy loss"
    uses_advantages: bool = True
    only_token_mean: bool = False

    def __call__(self, batch: LossBatch, **options: Any) -> Loss:
        """Returns the loss of a micro-batch, with metrics as floats.

        Raises:
            ConfigError: an option is unknown or a column is missing.
        """
        self.check_options(options)
        if missing := self.missing_columns(batch):
            advice = "; ".join(_SOURCES.get(name, f"{name} comes from the trainers agentic_*") for name in missing)
            raise ConfigError(f"policy loss {self.name!r} needs {missing}, got none; {advice}")
        loss = self.function(batch, **options)
        return replace(loss, metrics=as_floats(loss.metrics))


def policy_loss(
    *, needs: tuple[str, ...] = (), uses_advantages: bool = True, only_token_mean: bool = False
) -> Callable[[Callable[..., Loss]], PolicyLossType]:
    """Makes a policy loss of a function `(batch, *, options) -> Loss`.

    Args:
        needs: optional columns of `LossBatch` that the loss requires.
        uses_advantages: False if advantages have no effect. Sections that change them are refused with the loss.
        only_token_mean: the loss divides by the tokens of the whole batch, so other `actor.loss_agg_mode` and
            `per_session` are refused.
    """
    assert set(needs) <= OPTIONAL, needs

    def make(function: Callable[..., Loss]) -> PolicyLossType:
        return PolicyLossType(
            name=function.__name__,
            function=function,
            needs=frozenset(needs),
            uses_advantages=uses_advantages,
            only_token_mean=only_token_mean,
        )

    return make


_REGISTRY = Registry[PolicyLossType](
    package="verl_agentic.credit.policy_losses",
    extensions=("verl_agentic.methods.policy_losses",),
    what="policy loss",
    kind=PolicyLossType,
    decorator="policy_loss",
    others="one of verl's, ",
)
load_policy_loss, policy_loss_names, is_policy_loss = _REGISTRY.load, _REGISTRY.names, _REGISTRY.has


def needs_of_loss(name: str) -> frozenset[str]:
    """Returns the optional columns that a loss requires; empty for verl's losses."""
    return load_policy_loss(name).needs if is_policy_loss(name) else frozenset()


_SOURCES = {
    "ref_log_prob_BT": "set actor.use_kl_loss=true or algorithm.use_kl_in_reward=true",
    "rollout_log_prob_BT": "set rollout.calculate_log_probs=true",
    "entropy_BT": "set actor.calculate_entropy=true",
    "values_BT": "set critic.enable=true",
}
