"""The sections and adapters of policy losses and engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.engine.attention import check_attention
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.recipe_options import options_without_recipe, replacing_in_errors
from verl_agentic.verl.sections import has, plain_section, section

_LOSS = "actor_rollout_ref.actor.policy_loss"
_MODEL = "actor_rollout_ref.model"


@section(f"{_LOSS}.options")
def policy_loss_options(config: Any) -> Mapping[str, Any]:
    """Returns the options of the policy loss. Raises ConfigError if the loss lacks one of them."""
    from verl_agentic.credit.policy_loss import is_policy_loss, load_policy_loss

    options = plain_section(config, f"{_LOSS}.options")
    name = str(OmegaConf.select(config, f"{_LOSS}.loss_mode"))
    if is_policy_loss(name):
        with replacing_in_errors(f"{_LOSS}.options"):
            load_policy_loss(name).check_options(options)
    elif options:
        raise ConfigError(f"{_LOSS}.options are for losses of ours, got {options} for {name!r}; unset them")
    return options


def choose_options(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the options of the policy loss without those of a recipe's."""
    return options_without_recipe(config, chooser=f"{_LOSS}.loss_mode", place=f"{_LOSS}.options")


def _read_loss_mode(config: Any) -> str:
    return str(OmegaConf.select(config, f"{_LOSS}.loss_mode"))


def _is_our_loss(config: Any) -> bool:
    from verl_agentic.credit.policy_loss import is_policy_loss

    return bool(OmegaConf.select(config, f"{_LOSS}.per_session")) or is_policy_loss(_read_loss_mode(config))


_FSDP = "verl.workers.engine.fsdp.transformer_impl"
FEATURES = Features(
    places={f"policy_loss.{key}": f"{_LOSS}.{key}" for key in ("options", "per_session")},
    choices=(choose_options,),
    needs_trainer=(f"{_LOSS}.per_session",),
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
            module="engine.value_head",
            needs="verl.utils.model",
            gives="critic without flash-attn",
            chosen_by="critic.model.override_config.attn_implementation",
        ),
    ),
)
