"""The sections and adapters of the log, the audit, the alarms and the waiting of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.base.settings import read_settings
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.sections import AGENTIC, plain_section, section

if TYPE_CHECKING:
    from verl_agentic.observe.health.monitor import HealthSettings
    from verl_agentic.observe.live.stuck_episodes import WaitingOptions


@section(f"{AGENTIC}.health")
def health_settings(config: Any) -> HealthSettings:
    """Returns the settings of alarms. Raises ConfigError if a key or alarm is unknown, or `rollback` is impossible."""
    from verl_agentic.observe.health.monitor import HealthSettings

    settings = read_settings(HealthSettings, plain_section(config, f"{AGENTIC}.health"), section=f"{AGENTIC}.health")
    whole: Any = OmegaConf.to_container(config, resolve=False)
    settings.check_trainer(whole)
    if settings.judge_drift is not None:
        settings.judge_drift.read_options(plain_section(config, "reward"))
        settings.judge_drift.load_samples()
    return settings


@section(f"{AGENTIC}.waiting")
def waiting_options(config: Any) -> WaitingOptions:
    """Returns the limits of waits of episodes and trainer."""
    from verl_agentic.observe.live.stuck_episodes import WaitingOptions

    return read_settings(WaitingOptions, plain_section(config, f"{AGENTIC}.waiting"), section=f"{AGENTIC}.waiting")


def _has_log(config: Any) -> bool:
    return bool({"log", "audit", "health"} & set(OmegaConf.select(config, AGENTIC) or {}))


def watch_errors(config: Any, main: dict[str, Any]) -> None:
    """Makes every process of a run store its first errors."""
    from verl_agentic.verl.extensions.monitoring.error_log import watch_driver

    watch_driver(config, main)


def watch_progress(config: Any, main: dict[str, Any]) -> None:
    """Makes the driver of a run with a log show its progress where the output is a terminal."""
    from verl_agentic.verl.extensions.monitoring.live_console import show_in_terminal
    from verl_agentic.verl.run_dir import run_dir_of

    folder = run_dir_of(config)
    has_console = "console" in (OmegaConf.select(config, "trainer.logger") or ())
    is_live = has_console and OmegaConf.select(config, f"{AGENTIC}.log.console") in (None, "live")
    if folder is not None and is_live and callable(main.get("run_ppo")):
        main["run_ppo"] = show_in_terminal(main["run_ppo"], folder)


FEATURES = Features(
    watchers=(watch_errors, watch_progress),
    adapters=(
        Adapter(
            module="extensions.monitoring.error_log",
            needs="verl.utils.device",
            gives="the first errors of every process, told last",
            chosen_by="agentic.log.dir",
        ),
        Adapter(
            module="extensions.monitoring.console_line",
            needs="verl.utils.logger.aggregate_logger",
            gives="about ten numbers a step on the console of a run with a log",
            chosen_by="agentic.log.console",
        ),
        Adapter(
            module="extensions.monitoring.episode_waits",
            needs="verl.experimental.agent_loop",
            gives="what episodes wait for, and their timelines",
            chosen_by="always; agentic.waiting",
            behind=("rollout.agent_loop",),
        ),
        Adapter(
            module="extensions.monitoring.metric_joins",
            needs="verl.trainer.ppo.v1.utils",
            gives="metrics of several updates in a step, joined by what they mean",
            chosen_by="always",
        ),
        Adapter(
            module="extensions.monitoring.token_units",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="metrics batch/entropy and batch/ref_kl, in nats per token",
            chosen_by="always",
        ),
        Adapter(
            module="extensions.monitoring.validation_rows",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="validation without the results of void episodes",
            chosen_by="always",
        ),
        Adapter(
            module="extensions.monitoring.step_time",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="metrics time/*, tool_time/*, turn_time/*",
            chosen_by="always",
            behind=("replay_buffer.episode_buffer",),
        ),
        Adapter(
            module="extensions.monitoring.health.trainer_log",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="trajectory log, audit and health of a run",
            chosen_by="agentic.{log, audit, health}",
            demanded_by=_has_log,
            behind=("extensions.monitoring.step_time",),  # it logs and watches all metrics
        ),
        Adapter(
            module="extensions.monitoring.trainer_waits",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="what the trainer waits for, when it is stuck",
            chosen_by="always; agentic.waiting",
            behind=("extensions.monitoring.step_time",),
        ),
    ),
)
