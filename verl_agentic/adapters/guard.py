"""Patches verl: `auto_set_device` stops a run that asks for something of ours that did not load.

It stops before Ray is started.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_agentic.adapters.monitoring import error_log
from verl_agentic.adapters.patching import wrap
from verl_agentic.adapters.sections import refused_sections
from verl_agentic.adapters.trainer.trainer_features import credit_settings
from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gating.comparable_log_probs import truncation_warning

RESOLVER = "verl_agentic"
_CPU = ("cpu.platform", "cpu.distributed", "cpu.cpu_engine")


def install_resolver(check: Callable[[], None]) -> None:
    """Makes `${verl_agentic:plugin}` resolve when `check` passes.

    A recipe that holds this interpolation cannot start without the plugin, not even when nothing of it was installed:
    OmegaConf then knows no such resolver, and says so.
    """

    def required(what: str) -> str:
        check()
        return what

    OmegaConf.register_new_resolver(RESOLVER, required, replace=True)


def install_check(load: Callable[[list[str]], None]) -> None:
    """Makes verl's `auto_set_device` call `load` with the adapters that a configuration needs; it may raise.

    All of verl's trainers, SFT included, call it first, in the driver. It also is the last to see `trainer.device=cpu`:
    without the platform cpu it silently writes `cuda` over it.
    """
    from verl.utils import device

    @wrap(device, "auto_set_device")
    def check_and_set_device(auto_set_device: Any, config: Any) -> None:
        load(demanded(config))
        # Frame 1 is that of the wrapper, frame 2 that of verl's trainer.
        error_log.watch_driver(config, sys._getframe(2).f_globals)
        _check_platform(config)
        _check_credit(config)
        _warn_of_truncation(config)
        _check_sections(config)
        auto_set_device(config)


def _check_platform(config: DictConfig) -> None:
    device = OmegaConf.select(config, "trainer.device")
    chosen = os.environ.get("VERL_PLATFORM", "")
    is_cpu = _is_cpu_chosen()
    if device == "cpu" and not is_cpu:
        raise ConfigError(
            f"trainer.device=cpu needs the platform cpu, got VERL_PLATFORM={chosen!r}; export VERL_PLATFORM=cpu"
        )
    if is_cpu and device != "cpu":
        raise ConfigError(
            f"VERL_PLATFORM=cpu needs trainer.device=cpu, got {device!r}; put agentic/cpu behind the recipe's defaults"
        )


def _check_credit(config: DictConfig) -> None:
    # They import torch, which this module, loaded in every process, does not need.
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage
    from verl_agentic.algorithms.policy_loss import needs_of_loss

    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    loss = str(OmegaConf.select(config, "actor_rollout_ref.actor.policy_loss.loss_mode"))
    has_teacher = "teacher_log_prob_BT" in needs_of_loss(loss)
    if has_teacher or OmegaConf.select(config, "algorithm.prompt_information") is not None:
        from verl_agentic.adapters.trainer.extra_rows import check_router_replay

        check_router_replay(config, what=f"the loss {loss}" if has_teacher else "algorithm.prompt_information")
    if not is_advantage(name):
        return
    estimator = load_advantage(name)
    # Of options that must be given, none may be given.
    estimator.check_options(credit_settings(config).options)
    if estimator.needs_critic and not OmegaConf.select(config, "critic.enable"):
        raise ConfigError(f"estimator {name!r} needs a critic, got critic.enable=null or false; set critic.enable=true")
    has_log_probs = OmegaConf.select(config, "actor_rollout_ref.rollout.calculate_log_probs")
    if "rollout_log_probs_BT" in estimator.needs and not has_log_probs:
        raise ConfigError(
            f"estimator {name!r} needs the log-probs of the policy that sampled, got "
            f"actor_rollout_ref.rollout.calculate_log_probs={has_log_probs}; set it to true, or take the estimator "
            f"{'turn_gae' if 'turn_ids_BT' in estimator.needs else 'vapo_gae'}, which needs none"
        )


def _check_sections(config: DictConfig) -> None:
    for refused in refused_sections(config):
        raise refused


def _warn_of_truncation(config: DictConfig) -> None:
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    correction = OmegaConf.select(config, "algorithm.rollout_correction") or {}
    warning = truncation_warning(
        top_p=float(rollout.get("top_p") or 1.0),
        top_k=int(rollout.get("top_k") or -1),
        uses_rollout_log_probs=any(correction.get(name) for name in ("rollout_is", "rollout_rs", "bypass_mode")),
    )
    if warning is not None:
        logging.getLogger(__name__).warning(warning)


def demanded(config: DictConfig) -> list[str]:
    """Returns the adapters that a configuration and the environment ask for."""
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    sampler = OmegaConf.select(config, "trainer.v1.sampler.sampler_kwargs") or {}
    has_rubric = OmegaConf.select(config, "reward.reward_manager.name") == "rubric"
    asked = {
        "server.register": rollout.get("name") == "agentic",
        "rollout.agent_loop": _is_env_agent(rollout),
        "server.checkpoint_engine": (rollout.get("checkpoint_engine") or {}).get("backend") == "object_store",
        "trainer.shuffled_rewards": OmegaConf.select(config, "algorithm.adv_estimator") == "grpo_shuffled",
        "replay_buffer.episode_buffer": has_rubric or sampler.get("poll_interval_s") is not None,
        "trainer.schedules": has_rubric or bool({"temperature_schedule", "max_void_share"} & set(_section(rollout))),
        "monitoring.trainer_log": bool({"log", "audit", "health"} & set(_section(rollout))),
        "checkpoints.checkpoint_retention": bool({"stop", "rollback"} & _health_actions(_section(rollout))),
        "trainer.prompt_order": OmegaConf.select(config, "data.curriculum") is not None,
        **dict.fromkeys(("reward.rubric_manager", "reward.group_rewards"), has_rubric),
        **_demanded_of_credit(config),
        **dict.fromkeys(_CPU, _is_cpu_chosen()),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _demanded_of_credit(config: DictConfig) -> dict[str, bool]:
    # They import torch, which this module, loaded in every process, does not need.
    from verl_agentic.algorithms.advantage import is_advantage
    from verl_agentic.algorithms.policy_loss import is_policy_loss, needs_of_loss

    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    loss = str(OmegaConf.select(config, "actor_rollout_ref.actor.policy_loss.loss_mode"))
    has_bins = OmegaConf.select(config, "critic.categorical") is not None
    has_target = OmegaConf.select(config, "critic.target") is not None
    is_per_session = bool(OmegaConf.select(config, "actor_rollout_ref.actor.policy_loss.per_session"))
    is_our_trainer = str(OmegaConf.select(config, "trainer.v1.trainer_mode")).startswith("agentic_")
    is_our_estimator = is_advantage(str(OmegaConf.select(config, "algorithm.adv_estimator")))
    has_credit = OmegaConf.select(config, "algorithm.credit") is not None
    sections = ("length_lr", "implicit_reward", "prompt_information", "self_teacher")
    has = {key: OmegaConf.select(config, f"algorithm.{key}") is not None for key in sections}
    needing = [f"algorithm.{key}" for key in has if has[key]]
    needing += ["actor_rollout_ref.actor.policy_loss.per_session"] if is_per_session else []
    # Who was guided is a number that verl's own trainers do not hand over.
    needing += ["actor_rollout_ref.rollout.custom.agentic.guidance"] if _section(rollout).get("guidance") else []
    if needing and not is_our_trainer:
        raise ConfigError(
            f"{needing[0]} needs a trainer of ours, got trainer.v1.trainer_mode="
            f"{OmegaConf.select(config, 'trainer.v1.trainer_mode')!r}; set agentic_sync, agentic_colocate_async or "
            "agentic_separate_async"
        )
    return {
        **dict.fromkeys(("engine.loss_config", "engine.loss_functions"), is_per_session or is_policy_loss(loss)),
        "engine.mean_log_prob": "mean_log_ratio_BT" in needs_of_loss(loss),
        "engine.critic_config": has_bins or has_target,
        "engine.categorical_critic": has_bins,
        "engine.target_critic": has_target,
        "trainer.advantages": is_our_trainer or is_our_estimator or has_credit or _is_env_agent(rollout),
        "trainer.trainers": is_our_trainer,
        "engine.learning_rate": has["length_lr"],
        "engine.reference_model": has["implicit_reward"],
        "engine.ema_teacher": has["self_teacher"],
    }


def _is_cpu_chosen() -> bool:
    # Not asked of adapters.cpu.platform, which may be what has failed.
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"


def _section(rollout: Any) -> Any:
    return (rollout.get("custom") or {}).get("agentic") or {}


def _health_actions(section: Any) -> set[str]:
    actions = (section.get("health") or {}).get("actions") or {}
    return {str(action) for action in actions.values()}


def _is_env_agent(rollout: Any) -> bool:
    agent = rollout.get("agent") or {}
    return agent.get("default_agent_loop") == "env_agent" or "agentic" in (rollout.get("custom") or {})
