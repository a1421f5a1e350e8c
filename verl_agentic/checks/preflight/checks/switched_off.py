"""Options without effect because their switch is off; each was checked in verl 0.9.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_agentic.base.finding import Finding, ok, warn
from verl_agentic.checks.preflight.checks.dead_knobs import is_set, value_at
from verl_agentic.checks.preflight.episode_section import SECTION
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.checks.preflight.run_sizes import has_critic

_ACTOR, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
_LOSS, _CORRECTION = f"{_ACTOR}.policy_loss", "algorithm.rollout_correction"


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A setting, and options that only have an effect with it."""

    setting: str
    """The setting that turns them on, as `key=value`."""
    is_on: Callable[[PlannedRun], bool]
    options: tuple[str, ...]


def _is_truthy(key: str) -> Callable[[PlannedRun], bool]:
    return lambda run: bool(run.get(key))


def _is_positive(key: str) -> Callable[[PlannedRun], bool]:
    return lambda run: run.number(key) > 0


def _is_equal(key: str, value: str) -> Callable[[PlannedRun], bool]:
    return lambda run: run.get(key) == value


def _join_paths(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


SWITCHES = (
    Switch(
        setting=f"{_ACTOR}.use_kl_loss=true",
        is_on=_is_truthy(f"{_ACTOR}.use_kl_loss"),
        options=(f"{_ACTOR}.kl_loss_coef",),
    ),
    Switch(
        setting="algorithm.use_kl_in_reward=true",
        is_on=_is_truthy("algorithm.use_kl_in_reward"),
        options=_join_paths("algorithm.kl_ctrl", "kl_coef", "target_kl", "horizon"),
    ),
    Switch(
        setting="algorithm.filter_groups.enable=true",
        is_on=_is_truthy("algorithm.filter_groups.enable"),
        options=_join_paths("algorithm.filter_groups", "metric", "max_inflight_gen_batches"),
    ),
    Switch(
        setting=f"{_CORRECTION}.rollout_is=token",
        is_on=_is_truthy(f"{_CORRECTION}.rollout_is"),
        options=_join_paths(_CORRECTION, "rollout_is_threshold", "rollout_is_batch_normalize"),
    ),
    Switch(
        setting=f"{_CORRECTION}.rollout_rs=seq_mean_k1",
        is_on=_is_truthy(f"{_CORRECTION}.rollout_rs"),
        options=(f"{_CORRECTION}.rollout_rs_threshold",),
    ),
    Switch(
        setting="distillation.enabled=true",
        is_on=_is_truthy("distillation.enabled"),
        options=("distillation.distillation_loss", "distillation.teacher_models.teacher_model.model_path"),
    ),
    Switch(
        setting="reward.reward_model.enable=true",
        is_on=_is_truthy("reward.reward_model.enable"),
        options=("reward.reward_model.model_path",),
    ),
    Switch(
        setting="reward.custom_reward_function.path=FILE",
        is_on=_is_truthy("reward.custom_reward_function.path"),
        options=_join_paths("reward.custom_reward_function", "name", "reward_kwargs"),
    ),
    Switch(
        setting="trainer.resume_mode=resume_path",
        is_on=_is_equal("trainer.resume_mode", "resume_path"),
        options=("trainer.resume_from_path",),
    ),
    Switch(
        setting="a positive trainer.save_freq",
        is_on=_is_positive("trainer.save_freq"),
        options=_join_paths("trainer", "max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep", "default_hdfs_dir"),
    ),
    Switch(
        setting="critic.enable=true, or an estimator with a critic",
        is_on=has_critic,
        options=("critic.optim.lr", "critic.cliprange_value", "trainer.critic_warmup"),
    ),
    Switch(
        setting=f"{_LOSS}.loss_mode=clip_cov",
        is_on=_is_equal(f"{_LOSS}.loss_mode", "clip_cov"),
        options=_join_paths(_LOSS, "clip_cov_ratio", "clip_cov_lb", "clip_cov_ub"),
    ),
    Switch(
        setting=f"{_LOSS}.loss_mode=kl_cov",
        is_on=_is_equal(f"{_LOSS}.loss_mode", "kl_cov"),
        options=_join_paths(_LOSS, "kl_cov_ratio", "ppo_kl_coef"),
    ),
    Switch(
        setting=f"a positive {_MODEL}.lora_rank",
        is_on=_is_positive(f"{_MODEL}.lora_rank"),
        options=_join_paths(_MODEL, "lora_alpha", "target_modules", "exclude_modules"),
    ),
    Switch(
        setting="agentic.log.dir=FOLDER",
        is_on=_is_truthy(f"{SECTION}.log.dir"),
        options=_join_paths(f"{SECTION}.log", "file_mb", "total_gb"),
    ),
)


def switched_off(run: PlannedRun) -> list[Finding]:
    """Returns options that were set while the setting that they belong to is off."""
    findings = [
        warn(f"{path}={value_at(run.config, path)} has no effect without {switch.setting}", "set it, or unset this")
        for switch in SWITCHES
        if not switch.is_on(run)
        for path in switch.options
        # A coefficient of 0 is as good as off.
        if is_set(path, run) and value_at(run.config, path) not in (0, False)
    ]
    return findings or [ok("no option is set whose switch is off")]
