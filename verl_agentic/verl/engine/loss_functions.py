"""Patches verl: `agg_loss` and `ppo_loss`; registers our policy losses by name in `actor.policy_loss.loss_mode`.

`agg_loss` applies `actor.policy_loss.per_session` to every loss, including verl's. `ppo_loss` provides the micro-batch.
Options of a loss are in `actor.policy_loss.options`.

verl passes a config and four tensors to a policy loss. Ours also need other columns of the micro-batch (entropy,
values, siblings, outcomes). The config, a view of verl's for one call, carries them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import register_policy_loss
from verl.workers.utils import losses
from verl.workers.utils.padding import no_padding_2_padding

from verl_agentic.credit.policy_loss import Loss, LossBatch, is_policy_loss, load_policy_loss, policy_loss_names
from verl_agentic.verl.patching import replace, wrap

_PER_TOKEN = {
    "rollout_log_prob_BT": "rollout_log_probs",
    "ref_log_prob_BT": "ref_log_prob",
    "values_BT": "values",
    "turn_ids_BT": "turn_ids",
    "teacher_log_prob_BT": "teacher_log_prob",
}
_PER_ROW = {
    "group_B": "credit_group",
    "session_B": "credit_session",
    "group_size_B": "credit_group_size",
    "outcome_B": "credit_outcome",
    "positive_share_B": "credit_positive_share",
    "is_external_B": "is_external",
}


_weights: ContextVar[Tensor | None] = ContextVar("session_weights", default=None)
"""`[B]` of the current micro-batch: 1 / number of sampled tokens of the row's session."""


class LossConfig:
    """verl's actor config for one call of a loss, with the micro-batch."""

    def __init__(self, config: Any, columns: Mapping[str, Tensor]) -> None:
        self._config = config
        self.columns = columns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


@wrap(losses, "ppo_loss")
def _loss_with_columns(ppo_loss: Any, config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
    if is_policy_loss(mode := str(config.policy_loss.get("loss_mode"))):
        _register_loss(mode)
        config = LossConfig(config, _collect_columns(model_output, data))
    if not config.policy_loss.get("per_session"):
        return ppo_loss(config, model_output, data, dp_group)
    token = _weights.set(data["credit_session_weight"])
    try:
        return ppo_loss(config, model_output, data, dp_group)
    finally:
        _weights.reset(token)


@wrap(core_algos, "agg_loss")
def _aggregate_sessions(agg_loss: Any, loss_mat: Tensor, loss_mask: Tensor, *args: Any, **info: Any) -> Tensor:
    """Weighs sessions equally in every term of the loss, also KL and entropy, if `per_session` is set."""
    if (weights_B := _weights.get()) is None:
        return agg_loss(loss_mat, loss_mask, *args, **info)
    means_B = torch.where(loss_mask.bool(), loss_mat, 0.0).sum(dim=-1) * weights_B
    # Uses the sessions of the micro-batch if the mini-batch's number is unknown.
    num_sessions = info.get("global_batch_size") or (loss_mask.sum(dim=-1) * weights_B).sum()
    return means_B.sum() / num_sessions * info.get("dp_size", 1)


def _collect_columns(model_output: Mapping[str, Any], data: Any) -> dict[str, Tensor]:
    """Returns the optional columns of `LossBatch` that a micro-batch has."""
    columns: dict[str, Tensor] = {}
    if model_output.get("entropy") is not None:
        columns["entropy_BT"] = no_padding_2_padding(model_output["entropy"], data)
    width = int(data["response_mask"].offsets().diff().max())
    for ours, theirs in _PER_TOKEN.items():
        if theirs in data:
            columns[ours] = data[theirs].to_padded_tensor(0)[:, :width]
    if "old_mean_log_prob" in data and "mean_log_prob" in model_output:
        new_BT = no_padding_2_padding(model_output["mean_log_prob"], data)
        columns["mean_log_ratio_BT"] = new_BT - data["old_mean_log_prob"].to_padded_tensor(0)[:, :width]
    if "teacher_top_log_probs" in data and "top_log_probs" in model_output:
        columns["top_log_prob_BTK"] = pad_sequence(model_output["top_log_probs"].unbind(), batch_first=True)
        columns["teacher_top_log_prob_BTK"] = pad_sequence(data["teacher_top_log_probs"].unbind(), batch_first=True)
    columns.update({ours: data[theirs] for ours, theirs in _PER_ROW.items() if theirs in data})
    return columns


def _adapt_loss(name: str) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
    loss_type = load_policy_loss(name)

    def compute(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        low, high = config.clip_ratio_low, config.clip_ratio_high
        batch = LossBatch(
            log_prob_BT=log_prob,
            old_log_prob_BT=old_log_prob,
            advantages_BT=advantages,
            mask_BT=response_mask.bool(),
            clip_low=config.clip_ratio if low is None else low,
            clip_high=config.clip_ratio if high is None else high,
            clip_dual=config.get("clip_ratio_c", 3.0),
            is_weights_BT=rollout_is_weights,
            **getattr(config, "columns", {}),
        )
        loss = loss_type(batch, **config.policy_loss.get("options", {}))
        total = _aggregate_loss(loss, response_mask, loss_agg_mode=loss_agg_mode, info=config.global_batch_info)
        return total, {f"actor/{name}": value for name, value in loss.metrics.items()}

    return compute


def _aggregate_loss(loss: Loss, mask_BT: Tensor, *, loss_agg_mode: str, info: Mapping[str, Any]) -> Tensor:
    if loss.per_token_BT is not None:
        return core_algos.agg_loss(loss_mat=loss.per_token_BT, loss_mask=mask_BT, loss_agg_mode=loss_agg_mode, **info)
    per_row_B = cast("Tensor", loss.per_row_B)
    if (weights_B := _weights.get()) is not None and not loss.is_shared:
        per_row_B = per_row_B * mask_BT.sum(dim=-1) * weights_B
    rows = info.get("global_batch_size") or len(per_row_B)
    return per_row_B.sum() / rows * info.get("dp_size", 1)


@functools.cache
def _register_loss(name: str) -> None:
    """Registers one of our losses in verl by name: a bundled one, or the user's by its address."""
    register_policy_loss(name)(_adapt_loss(name))


replace(losses, "agg_loss", core_algos.agg_loss)
for _name in policy_loss_names():
    _register_loss(_name)
