"""The sections of policy losses and critics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.adapters.sections import plain_section, section
from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings

_LOSS = "actor_rollout_ref.actor.policy_loss"


@section(f"{_LOSS}.options")
def policy_loss_options(config: Any) -> Mapping[str, Any]:
    """Returns the options of the policy loss.

    Raises:
        ConfigError: the loss does not have them.
    """
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
    """Returns the section `critic.categorical`, checked.

    Raises:
        ConfigError: it cannot work.
    """
    from verl_agentic.algorithms.losses.hl_gauss import BinSettings

    return dataclasses.asdict(read_settings(BinSettings, written, section="critic.categorical"))


@section("critic.target")
def target_tau(config: Any) -> float:
    """Returns by how much a critic's target network follows it.

    Raises:
        ConfigError: the section cannot work, or nothing uses such a network.
    """
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage

    mode = str(OmegaConf.select(config, "trainer.v1.trainer_mode"))
    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if not is_advantage(name) or "target_values_BT" not in load_advantage(name).accepts:
        raise ConfigError(
            f"estimator {name!r} has no use for critic.target; set algorithm.adv_estimator=archer, or unset it"
        )
    if not mode.startswith("agentic_"):
        raise ConfigError(
            f"critic.target needs a trainer of ours, got trainer.v1.trainer_mode={mode!r}; set agentic_sync, "
            "agentic_colocate_async or agentic_separate_async"
        )
    return read_tau(plain_section(config, "critic.target"))


def read_tau(written: Any) -> float:
    """Returns `tau` of the section `critic.target`.

    Raises:
        ConfigError: it cannot work.
    """
    from verl_agentic.algorithms.losses.target_network import TargetSettings

    return read_settings(TargetSettings, written, section="critic.target").tau
