"""The sections of methods that their own parts read, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.verl.sections import plain_section, section

if TYPE_CHECKING:
    from verl_agentic.methods.cost_limits import CostLimitSettings
    from verl_agentic.methods.losses.length_lr import LengthLrSettings
    from verl_agentic.methods.losses.linear_lr import LinearLrSettings
    from verl_agentic.methods.prompt_information import PromptInformationSettings

_POLICY_LOSS = "actor_rollout_ref.actor.policy_loss"


@section("algorithm.cost_limits")
def cost_limits(config: Any) -> CostLimitSettings | None:
    """Returns the limits of costs, or None."""
    from verl_agentic.methods.cost_limits import CostLimitSettings

    raw_settings = plain_section(config, "algorithm.cost_limits")
    if raw_settings is None:
        return None
    return read_settings(CostLimitSettings, raw_settings, section="algorithm.cost_limits")


@section("algorithm.length_lr")
def length_lr(config: Any) -> LengthLrSettings | None:
    """Returns the settings of a length-dependent learning rate, or None."""
    from verl_agentic.methods.losses.length_lr import LengthLrSettings

    raw_settings = plain_section(config, "algorithm.length_lr")
    return (
        None if raw_settings is None else read_settings(LengthLrSettings, raw_settings, section="algorithm.length_lr")
    )


@section("algorithm.linear_lr")
def linear_lr(config: Any) -> LinearLrSettings | None:
    """Returns the settings of a learning rate that falls linearly, or None. Raises ConfigError if verl's falls too."""
    from verl_agentic.methods.losses.linear_lr import LinearLrSettings

    if (raw_settings := plain_section(config, "algorithm.linear_lr")) is None:
        return None
    key = "actor_rollout_ref.actor.optim.lr_scheduler_type"
    if (kind := OmegaConf.select(config, key)) not in (None, "constant"):
        raise ConfigError(f"algorithm.linear_lr needs {key}=constant, got {kind!r}: both would multiply; set it")
    return read_settings(LinearLrSettings, raw_settings, section="algorithm.linear_lr")


@section("algorithm.prompt_information")
def prompt_information(config: Any) -> PromptInformationSettings | None:
    """Returns the settings of prompt information, or None."""
    from verl_agentic.methods.prompt_information import PromptInformationSettings

    raw_settings = plain_section(config, "algorithm.prompt_information")
    if raw_settings is None:
        return None
    return read_settings(PromptInformationSettings, raw_settings, section="algorithm.prompt_information")


@section("critic.categorical")
def categorical(config: Any) -> Mapping[str, Any]:
    """Returns the bins of a critic that classifies returns."""
    return read_bins(plain_section(config, "critic.categorical"))


def read_bins(raw_settings: Any) -> dict[str, Any]:
    """Reads the section `agentic.critic.categorical`. Raises ConfigError if it is invalid."""
    from verl_agentic.methods.losses.hl_gauss import BinSettings

    return dataclasses.asdict(read_settings(BinSettings, raw_settings, section="critic.categorical"))


@section("critic.target")
def target_tau(config: Any) -> float:
    """Returns `tau` of a critic's target network. Raises ConfigError if the section is invalid, or nothing uses it."""
    from verl_agentic.credit.advantage import is_advantage, load_advantage

    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if not is_advantage(name) or "target_values_BT" not in load_advantage(name).accepts:
        raise ConfigError(f"estimator {name!r} ignores critic.target; set algorithm.adv_estimator=archer, or unset it")
    return read_tau(plain_section(config, "critic.target"))


def read_tau(raw_settings: Any) -> float:
    """Returns `tau` of the section `agentic.critic.target`. Raises ConfigError if it is invalid."""
    from verl_agentic.methods.losses.target_network import TargetSettings

    return read_settings(TargetSettings, raw_settings, section="critic.target").tau


def needs_column(config: Any, name: str) -> bool:
    """Tells whether the policy loss requires an optional column."""
    from verl_agentic.credit.policy_loss import needs_of_loss

    return name in needs_of_loss(str(OmegaConf.select(config, f"{_POLICY_LOSS}.loss_mode")))


def count_top_tokens(config: Any) -> int:
    """Returns the number of most likely tokens that the loss learns from; 0: the sampled ones."""
    has_teacher = needs_column(config, "teacher_log_prob_BT")
    return int(OmegaConf.select(config, f"{_POLICY_LOSS}.options.top_tokens") or 0) if has_teacher else 0
