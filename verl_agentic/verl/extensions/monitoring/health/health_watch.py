"""The health monitor of one trainer: options, alarms, findings."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.graders.judge.drift import DriftWatch
from verl_agentic.log.lines import Lines
from verl_agentic.log.metric_log import MetricsLog, read_metrics
from verl_agentic.observe.health.health_finding import HealthFinding
from verl_agentic.observe.health.monitor import ROLLED_BACK_TO, HealthMonitor
from verl_agentic.verl.checkpoints.healthy_checkpoints import Checkpoints
from verl_agentic.verl.extensions.monitoring.monitoring_features import health_settings
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.rollout.rollout_features import audit, log_options
from verl_agentic.verl.sections import AGENTIC, plain_section

logger = logging.getLogger(__name__)


class HealthWatch:
    """The alarms and findings of one trainer."""

    def __init__(self, config: Any, *, begun_at: int = 0) -> None:
        """Reads the section.

        Args:
            begun_at: step whose checkpoint the run was resumed from; 0 for a new one.

        Raises:
            ConfigError: a key is unknown, a value is out of range, or `rollback` is impossible.
        """
        self.options = log_options(config)
        self.audit = audit(config) if OmegaConf.select(config, f"{AGENTIC}.audit") is not None else None
        self.health = HealthMonitor(health_settings(config))
        folder = self.options.dir
        self.metrics = None if folder is None else MetricsLog(folder)
        self._findings = None if folder is None else Lines(Path(folder) / "health.jsonl")
        self._is_known = False
        self.num_rollbacks = 0
        """Rollbacks of the run, including earlier processes."""
        trainer = config.trainer
        is_named = trainer.get("resume_mode") == "resume_path" and trainer.get("resume_from_path")
        self.checkpoints = Checkpoints(
            Path(trainer.default_local_dir),
            begun_at=begun_at,
            resumed_from=Path(trainer.resume_from_path) if is_named else None,
        )
        self.drift = self._make_drift_watch(config)
        self.has_varying_groups = OmegaConf.select(config, "data.curriculum.group_size") is not None

    def _make_drift_watch(self, config: Any) -> DriftWatch | None:
        settings = self.health.settings.judge_drift
        if settings is None:
            return None
        options = settings.read_options(plain_section(config, "reward"))
        return DriftWatch(settings, options, folder=Path(config.trainer.default_local_dir))

    def remember(self, *, before: int) -> None:
        """Loads, once, the metrics of a resumed run's earlier steps into the alarms."""
        is_new, self._is_known = not self._is_known, True
        if not is_new or before <= 1 or self.options.dir is None:
            return
        try:
            for logged in read_metrics(self.options.dir, with_verls=False):
                if 0 <= logged["step"] < before:
                    self.health.observe(logged["step"], logged)
                    self.num_rollbacks += ROLLED_BACK_TO in logged
        except (OSError, ValueError):
            logger.exception("alarms do not know what was logged before step %d", before)

    def keep_healthy(self) -> None:
        """Retains the newest checkpoint that each stopping alarm found healthy."""
        newest_steps = (self.checkpoints.newest(step) for step in self.health.judged_until())
        self.checkpoints.keep(step for step in newest_steps if step is not None)

    def find(self, finding: HealthFinding) -> None:
        """Stores and logs a finding."""
        if self._findings is not None:
            self._findings.append({**finding.to_dict(), "time": time.time()})
        logger.log(logging.INFO if finding.level == "log" else logging.WARNING, "%s", finding)


def watch_of(trainer: Any) -> HealthWatch:
    """Returns the monitor of a trainer; makes it on the first call."""
    state = state_of(trainer)
    if state.health_watch is None:
        state.health_watch = HealthWatch(trainer.config, begun_at=trainer.global_steps)
    return state.health_watch
