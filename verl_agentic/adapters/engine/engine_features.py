"""The sections and adapters of policy losses and critics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.adapters.engine.attention import check_attention
from verl_agentic.adapters.features import Adapter, Features
from verl_agentic.adapters.sections import has, plain_section, section
from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings

_LOSS = "actor_rollout_ref.actor.policy_loss"
_MODEL = "actor_rollout_ref.model"


@section(f"{_LOSS}.options")
def policy_loss_options(config: Any) -> Mapping[str, Any]:
    """Returns the options of the policy loss. Raises ConfigError if the loss lacks one of them."""
    from verl_agentic.algorithms.policy_loss import is_policy_loss, load_policy_loss

    written = plain_section(config, f"{_LOSS}.options")
    name = str(OmegaConf.select(config, f"{_LOSS}.loss_mode"))
    if is_policy_loss(name):
        load_policy_loss(name).check_options(written)
    elif written:
        raise ConfigError(f"{_LOSS}.options are for losses of ours, got {written} for {name!r}; unset them")
    return written


@section("critic.categorical")
def categorical(config: Any) -> Mapping[str, Any]:
    """Returns the bins of a critic that classifies returns."""
    return read_bins(plain_section(config, "critic.categorical"))


def read_bins(written: Any) -> dict[str, Any]:
    """Reads the section `agentic.critic.categorical`. Raises ConfigError if it is invalid."""
    from verl_agentic.algorithms.losses.hl_gauss import BinSettings

    return dataclasses.asdict(read_settings(BinSettings, written, section="critic.categorical"))


@section("critic.target")
def target_tau(config: Any) -> float:
    """Returns `tau` of a critic's target network. Raises ConfigError if the section is invalid, or nothing uses it."""
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage

    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if not is_advantage(name) or "target_values_BT" not in load_advantage(name).accepts:
        raise ConfigError(f"estimator {name!r} ignores critic.target; set algorithm.adv_estimator=archer, or unset it")
    return read_tau(plain_section(config, "critic.target"))


def read_tau(written: Any) -> float:
    """Returns `tau` of the section `agentic.critic.target`. Raises ConfigError if it is invalid."""
    from verl_agentic.algorithms.losses.target_network import TargetSettings

    return read_settings(TargetSettings, written, section="critic.target").tau


def _loss(config: Any) -> str:
    return str(OmegaConf.select(config, f"{_LOSS}.loss_mode"))


def _is_our_loss(config: Any) -> bool:
    from verl_agentic.algorithms.policy_loss import is_policy_loss

    return bool(OmegaConf.select(config, f"{_LOSS}.per_session")) or is_policy_loss(_loss(config))


def _needs_mean_log_prob(config: Any) -> bool:
    from verl_agentic.algorithms.policy_loss import needs_of_loss

    return "mean_log_ratio_BT" in needs_of_loss(_loss(config))


_FSDP = "verl.workers.engine.fsdp.transformer_impl"
FEATURES = Features(
    places={
        **{f"policy_loss.{key}": f"{_LOSS}.{key}" for key in ("options", "per_session")},
        **{f"critic.{key}": f"critic.{key}" for key in ("categorical", "target")},
    },
    needs_trainer=(f"{_LOSS}.per_session", "critic.target"),
    checks=(check_attention,),
    adapters=(
        Adapter(
            module="engine.loss_config",
            needs="verl.workers.config.actor",
            gives="options of policy losses",
            chosen_by="agentic.policy_loss.options",
            demanded_by=_is_our_loss,
        ),
        Adapter(
            module="engine.worker_columns",
            needs="verl.utils.transferqueue_utils",
            gives="batches without the records of episodes, for workers",
            chosen_by="every run",
        ),
        Adapter(
            module="engine.loss_functions",
            needs="verl.workers.utils.losses",
            gives="policy losses",
            chosen_by=f"{_LOSS}.loss_mode",
            demanded_by=_is_our_loss,
        ),
        Adapter(
            module="engine.attention_kernels",
            needs=_FSDP,
            gives="attention without cuDNN's kernels, whose gradients became NaN on Hopper",
            chosen_by="attn_implementation=sdpa, unless TORCH_CUDNN_SDPA_DEPRIORITIZED is set",
        ),
        Adapter(
            module="methods.engine.mean_log_prob",
            needs=_FSDP,
            gives="mean log-prob over the vocabulary",
            chosen_by=f"{_LOSS}.loss_mode=rover",
            demanded_by=_needs_mean_log_prob,
        ),
        Adapter(
            module="engine.sampled_log_probs",
            needs=_FSDP,
            gives="logits of trained tokens only",
            chosen_by=f"{_MODEL}.use_fused_kernels=true {_MODEL}.fused_kernel_options.impl_backend=sampled",
            demanded_by=lambda config: (
                has(config, f"{_MODEL}.use_fused_kernels", True)
                and has(config, f"{_MODEL}.fused_kernel_options.impl_backend", "sampled")
            ),
        ),
        Adapter(
            module="methods.engine.critic_config",
            needs="verl.workers.config.critic",
            gives="bins of categorical critics, target networks",
            chosen_by="agentic.critic.categorical, agentic.critic.target",
            demanded_by=lambda config: has(config, "critic.categorical") or has(config, "critic.target"),
        ),
        Adapter(
            module="engine.value_head",
            needs="verl.utils.model",
            gives="critic without flash-attn",
            chosen_by="critic.model.override_config.attn_implementation",
        ),
        Adapter(
            module="methods.engine.categorical_critic",
            needs=_FSDP,
            gives="critics that classify returns",
            chosen_by="agentic.critic.categorical",
            demanded_by=lambda config: has(config, "critic.categorical"),
        ),
        Adapter(
            module="methods.engine.target_critic",
            needs=_FSDP,
            gives="a target network beside the critic",
            chosen_by="agentic.critic.target",
            demanded_by=lambda config: has(config, "critic.target"),
        ),
        Adapter(
            module="methods.engine.ema_teacher",
            needs=_FSDP,
            gives="a teacher that follows the actor slowly",
            chosen_by="agentic.self_teacher",
            demanded_by=lambda config: has(config, "algorithm.self_teacher"),
            # The engine of critics inherits what this one changes.
            behind=("methods.engine.categorical_critic", "methods.engine.target_critic"),
        ),
        Adapter(
            module="methods.engine.learning_rate",
            needs=_FSDP,
            gives="a learning rate that falls with the length of responses, or over the run",
            chosen_by="agentic.length_lr.reference_tokens, agentic.linear_lr.min_ratio",
            demanded_by=lambda config: has(config, "algorithm.length_lr") or has(config, "algorithm.linear_lr"),
        ),
        Adapter(
            module="methods.engine.reference_model",
            needs="verl.workers.engine_workers",
            gives="a reference with a model of its own",
            chosen_by="agentic.implicit_reward",
            demanded_by=lambda config: has(config, "algorithm.implicit_reward"),
        ),
    ),
)
