"""The monitor of a run's metrics: calls the alarms at every step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding
from verl_agentic.base.metric import Metric
from verl_agentic.base.settings import Settings, check_value, did_you_mean, setting
from verl_agentic.graders.judge.drift import JudgeDriftSettings
from verl_agentic.observe.diagnosis.check import check_names, load_check
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import Alarm, load_alarm
from verl_agentic.observe.health.health_finding import HealthFinding

Action = Literal["log", "warn", "rollback", "stop", "off"]
ROLLED_BACK_TO = "health/rolled_back_to"
"""Metric of a step with a rollback: the step of the checkpoint."""
METRICS = (
    Metric(name=ROLLED_BACK_TO, unit="step", per="step", rows="the run", join="last"),
    Metric(name="health/*", unit="1 while the alarm is raised", per="step", rows="the run", join="last"),
)
_STEP = "step"
_SECTION = "actor_rollout_ref.rollout.custom.agentic.health"

ALARMS: Mapping[str, Alarm] = {name: check for name in check_names() if isinstance(check := load_check(name), Alarm)}
"""Every bundled alarm by name."""
_LEAST_CLEAR = 3  # otherwise an alarm with a patience of 1 would be raised at every other step
_log = logging.getLogger(__name__)


def _read_actions(values: Any, *, name: str) -> dict[str, Any]:
    check_value(values, Mapping | None, name=name)
    # YAML 1.1 reads a bare `off` as false.
    actions = {alarm: "off" if action is False else action for alarm, action in (values or {}).items()}
    for alarm, action in actions.items():
        check_value(action, Action, name=f"{name}.{alarm}")
    return actions


def _read_thresholds(values: Any, *, name: str) -> dict[str, dict[str, Any]]:
    check_value(values, Mapping | None, name=name)
    for alarm, options in (values or {}).items():
        check_value(options, Mapping | None, name=f"{name}.{alarm}")
    return {alarm: dict(options or {}) for alarm, options in (values or {}).items()}


class HealthSettings(Settings):
    """Alarms on the metrics of a run: the section `agentic.health`."""

    enabled: bool = True
    """Turns the alarms on."""
    alarms: Sequence[str] = setting((), read=lambda values, *, name: values or ())
    """Alarms of the user, each `package.module:function` or `path/file.py:function`; named like their functions."""
    actions: Mapping[str, Action] = setting(factory=dict, read=_read_actions)
    """Alarm -> its action. `default` is for all other alarms; without it they `warn`."""
    thresholds: Mapping[str, Mapping[str, Any]] = setting(factory=dict, read=_read_thresholds)
    """Alarm -> its options, see `docs/health.md`."""
    every: int = setting(1, min=1)
    """Steps between two checks of the alarms."""
    max_rollbacks: int = setting(3, min=1)
    """Maximum number of rollbacks; one more stops the run."""
    judge_drift: JudgeDriftSettings | None = None
    """Samples that a judge of the rubric judges again during the run, for the alarm `judge_drift`."""

    def check_together(self) -> None:
        alarms = self.known
        for key, names in (("actions", {*alarms, "default"}), ("thresholds", set(alarms))):
            if unknown := sorted(set(getattr(self, key)) - names):
                hint = did_you_mean(unknown[0], alarms)
                raise ConfigError(f"{key} must name alarms, got {unknown}; known ones: {sorted(names)}{hint}")
        for name, options in self.thresholds.items():
            alarms[name].check(options)

    @property
    def known(self) -> dict[str, Alarm]:
        """All alarms by name, bundled and the user's."""
        alarms = dict(ALARMS)
        for address in self.alarms:
            alarm = load_alarm(address)
            if alarm.name in alarms:
                raise ConfigError(
                    f"alarms must have other names than {sorted(alarms)}, got {address!r}; rename the function"
                )
            alarms[alarm.name] = alarm
        return alarms

    def action(self, alarm: str) -> Action:
        """Returns the action of an alarm."""
        return self.actions.get(alarm, self.actions.get("default", "warn"))

    @property
    def guards(self) -> list[str]:
        """The alarms with `stop` or `rollback`."""
        return [name for name in self.known if self.enabled and self.action(name) in ("rollback", "stop")]

    def check_trainer(self, config: Mapping[str, Any], *, section: str = _SECTION) -> None:
        """Checks that a run can roll back, if an alarm needs it.

        Args:
            config: verl's whole configuration, as plain mappings.

        Raises:
            ConfigError: the trainer is asynchronous, or its checkpoints are incomplete.
        """
        named = [name for name in self.guards if self.action(name) == "rollback"]
        if not named:
            return
        option, trainer = f"{section}.actions: {{{named[0]}: rollback}}", config.get("trainer") or {}
        mode = (trainer.get("v1") or {}).get("trainer_mode") or "sync"
        if not str(mode).endswith("sync") or "async" in str(mode):
            raise ConfigError(
                f"{option} works with synchronous trainers, got trainer.v1.trainer_mode={mode}, which trains on "
                "samples of other weights; use stop, or trainer_mode agentic_sync"
            )
        if int(trainer.get("save_freq") or -1) < 1:
            raise ConfigError(f"{option} needs checkpoints, got trainer.save_freq={trainer.get('save_freq')}; set it")
        for path in ("actor_rollout_ref.actor.checkpoint", "critic.checkpoint"):
            saving = _get_section(config, path)
            if saving.get("async_save"):
                raise ConfigError(f"{option} needs synchronous checkpoints, got {path}.async_save=true")
            for key in ("save_contents", "load_contents"):
                contents = saving.get(key)
                if isinstance(contents, list) and (lacks := {"model", "optimizer"} - set(contents)):
                    raise ConfigError(
                        f"{option} needs {sorted(lacks)} in {path}.{key}, got {contents}; add what is missing"
                    )


@dataclass(kw_only=True)
class _Watch:
    """The state of one alarm."""

    kind: str = ""
    """The last finding."""
    held: int = 0
    """Consecutive checks at which it held."""
    since: int = 0
    """Step of the first of them."""
    clear: int = 0
    """Consecutive checks at which it did not hold."""
    raised: str | None = None
    """Kind of the finding for which it is raised."""
    well_at: int | None = None
    """Step of the last check at which it did not hold; None before the first."""

    def note(self, finding: Finding | None, step: int, *, patience: int) -> bool:
        """Records a check; returns whether the alarm is raised now."""
        if finding is None:
            self.held, self.clear, self.well_at = 0, self.clear + 1, step
            if self.clear >= max(patience, _LEAST_CLEAR):
                self.raised = None
            return False
        self.clear = 0
        if not self.held or finding.check != self.kind:
            self.kind, self.held, self.since = finding.check, 0, step
        self.held += 1
        if self.held < patience or self.raised == finding.check:
            return False
        self.raised = finding.check
        return True


class HealthMonitor:
    """Checks every step's metrics with all enabled alarms.

    An alarm is raised once, after its condition has held for `patience` consecutive checks. It can be raised again
    after its condition has not held for as many checks, at least 3. A check counts only if the alarm has new metrics.
    """

    def __init__(self, settings: HealthSettings | None = None) -> None:
        """Makes a monitor without a history."""
        self.settings = settings or HealthSettings()
        is_on = self.settings.enabled
        self._alarms = {n: a for n, a in self.settings.known.items() if is_on and self.settings.action(n) != "off"}
        self._watches = {name: _Watch() for name in self._alarms}
        self._history = History()
        self._is_watched: dict[str, bool] = {}
        self._failed: set[str] = set()
        self._alarms_with_news: set[str] = set()
        self._num_steps = 0
        self._begun_at: int | None = None

    @property
    def missing(self) -> dict[str, list[str]]:
        """Alarm -> its missing metrics, for alarms that lack some."""
        needs_by_alarm = {n: a.missing(self._history.names, **self._get_options(n)) for n, a in self._alarms.items()}
        return {name: needs for name, needs in needs_by_alarm.items() if needs}

    def observe(self, step: int, metrics: Mapping[str, Any]) -> list[HealthFinding]:
        """Returns the findings of the alarms that a step raises.

        Args:
            step: number of the training step.
            metrics: all metrics of it; other values than numbers are left out.
        """
        if not self._alarms:
            return []
        if self._begun_at is None:
            self._begun_at = step - 1
        row = self._select_watched(metrics)
        self._history.add({**row, _STEP: step})
        self._num_steps += 1
        # Some metrics are measured only now and then, between two checks.
        self._alarms_with_news.update(
            name for name, alarm in self._alarms.items() if alarm.has_news(row, **self._get_options(name))
        )
        if self._num_steps % self.settings.every:
            return []
        due_alarms, self._alarms_with_news = self._alarms_with_news, set()
        findings = [self._check_alarm(name, step) for name in self._alarms if name in due_alarms]
        if (rolled_back_to := _to_number(metrics.get(ROLLED_BACK_TO))) is not None:  # what was logged is read again
            self.forget(after=int(rolled_back_to))
        return [finding for finding in findings if finding is not None]

    def forget(self, *, after: int) -> None:
        """Forgets the steps after a rollback's checkpoint, and resets all alarms."""
        self._history = self._history.where(lambda row: row[_STEP] <= after)
        self._alarms_with_news.clear()
        for watch in self._watches.values():
            well_at = None if watch.well_at is None else min(watch.well_at, after)
            watch.held = watch.clear = watch.since = 0
            watch.raised, watch.well_at = None, well_at

    def healthy_until(self) -> int:
        """Returns the last step at which no stopping alarm that holds now held."""
        held = [watch for name, watch in self._list_guards() if watch.held]
        latest = int(self._history.now[_STEP]) if len(self._history) else 0
        return min((self._find_well_step(watch) for watch in held), default=latest)

    def judged_until(self) -> set[int]:
        """Returns, for each stopping alarm that was checked, the last step at which it did not hold."""
        return {
            self._find_well_step(watch) for _, watch in self._list_guards() if watch.held or watch.well_at is not None
        }

    def _list_guards(self) -> list[tuple[str, _Watch]]:
        return [(name, self._watches[name]) for name in self.settings.guards]

    def _find_well_step(self, watch: _Watch) -> int:
        return (self._begun_at or 0) if watch.well_at is None else watch.well_at

    def since(self, name: str) -> int | None:
        """Returns the first step of the checks at which an alarm has held without a break; None if it does not hold."""
        watch = self._watches.get(name)
        return watch.since if watch is not None and watch.held else None

    def metrics(self) -> dict[str, float]:
        """Returns `health/<alarm>`: 1 while it is raised, else 0."""
        return {f"health/{name}": float(watch.raised is not None) for name, watch in self._watches.items()}

    def _select_watched(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Returns the numbers among the metrics that an alarm reads."""
        row: dict[str, float] = {}
        for name, value in metrics.items():
            if name not in self._is_watched:
                self._is_watched[name] = any(a.watches(name, **self._get_options(n)) for n, a in self._alarms.items())
            if self._is_watched[name] and (number := _to_number(value)) is not None:
                row[name] = number
        return row

    def _check_alarm(self, name: str, step: int) -> HealthFinding | None:
        alarm, options = self._alarms[name], self._get_options(name)
        finding = self._run_alarm(alarm, options)
        watch = self._watches[name]
        if not watch.note(finding, step, patience=int(options.get("patience", alarm.patience))) or finding is None:
            return None
        level = self.settings.action(name)
        assert level != "off"
        return HealthFinding(
            step=step,
            check=name,
            level=level,
            status="warn" if level in ("log", "warn") else "fail",
            found=f"{finding.found}; since step {watch.since}",
            evidence={**finding.evidence, "since_step": float(watch.since)},
            advice=finding.advice,
        )

    def _get_options(self, name: str) -> Mapping[str, Any]:
        return self.settings.thresholds.get(name, {})

    def _run_alarm(self, alarm: Alarm, options: Mapping[str, Any]) -> Finding | None:
        try:
            finding = alarm(self._history, **options)
            return None if finding is None or finding.status == "ok" else finding
        except Exception:
            # A failing alarm must not end the run.
            if alarm.name not in self._failed:
                self._failed.add(alarm.name)
                _log.exception("the alarm %s failed and is skipped", alarm.name)
            return None


def _to_number(value: Any) -> float | None:
    """Returns a logged number of Python, NumPy or torch as a float; None for anything else."""
    if isinstance(value, str | bytes) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _get_section(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Returns the section at a dotted path; empty without one."""
    section: Any = config
    for key in path.split("."):
        section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}
