"""Runs `main_ppo` for one step and watches it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from verl_agentic.checks.cli.dryrun.plan import DryrunPlan
from verl_agentic.checks.dryrun.events import (
    FOLDER_VARIABLE,
    MODEL_VARIABLE,
    TEMPERATURE_VARIABLE,
    Events,
    read_completions,
)
from verl_agentic.checks.dryrun.step_report import FirstError, Report, build_report
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT, ChildFailedError, MemoryMeter, run_child

_PROBE = "verl_agentic.verl.extensions.dryrun.step_probe"
_EVENTS, _METRICS = "events", "metrics.jsonl"
_GRACE_S = 5.0
"""Time that a failed run has to report more."""


class _Over(Exception):
    """Stops a run from outside."""


def launch(plan: DryrunPlan, out: Path, *, timeout_s: float, on_events: Callable[[Events], None]) -> Report:
    """Runs one step and returns its report; none of its processes outlives the call.

    Args:
        out: folder for configuration, log and events.
        timeout_s: limit of the run.
        on_events: called as events come, to show progress.
    """
    environment = probe_environment(plan, out)
    events, log = Events(out / _EVENTS), out / "main_ppo.log"
    deadline, ended_well, too_long = time.monotonic() + timeout_s, False, False

    def watch() -> None:
        events.refresh()
        on_events(events)
        errors = events.of("error")
        if errors and time.time() - errors[0]["time"] > _GRACE_S:
            raise _Over
        if time.monotonic() > deadline:
            raise TimeoutError

    meter = MemoryMeter()
    # Ray's sockets do not fit into long paths.
    with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as ray_folder:
        path = plan.write(out, ray_folder=ray_folder)
        command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(path.parent)]
        try:
            run_child(
                [*command, "--config-name", path.stem],
                log=log,
                environment={**CPU_ENVIRONMENT, "HYDRA_FULL_ERROR": "1", **environment},
                meter=meter,
                on_poll=watch,
            )
            ended_well = True
        except (ChildFailedError, _Over):
            pass
        except TimeoutError:
            too_long = True
        finally:
            meter.stop()
    report = report_of(plan, out, log=log.read_text(errors="replace"), ended_well=ended_well or too_long)
    return _mark_overdue(report, timeout_s) if too_long and report.error is None else report


def probe_environment(plan: DryrunPlan, out: Path) -> dict[str, str]:
    """Returns the environment variables of a watched run, and makes its empty folder of events."""
    folder, metrics = out / _EVENTS, out / _METRICS
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (*folder.glob("*.jsonl"), metrics):
        stale.unlink(missing_ok=True)
    modules = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    return {
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "VERL_USE_EXTERNAL_MODULES": ",".join([*modules, _PROBE]),
        FOLDER_VARIABLE: str(folder),
        MODEL_VARIABLE: str(plan.model.folder),
        TEMPERATURE_VARIABLE: str(plan.translation.get("actor_rollout_ref.rollout.temperature") or 1.0),
    }


def report_of(plan: DryrunPlan, out: Path, *, log: str, ended_well: bool) -> Report:
    """Returns the report of a run that has ended.

    Args:
        out: its folder.
        log: its output.
        ended_well: whether it reached its end.
    """
    events = Events(out / _EVENTS)
    events.refresh()
    return build_report(
        events,
        completions=read_completions(events.folder),
        metrics=_read_metrics(out / _METRICS),
        expected=plan.expected,
        log=log,
        ended_well=ended_well,
    )


def _mark_overdue(report: Report, timeout_s: float) -> Report:
    """Returns the report of a run that hung."""
    stage = next((stage for stage in report.stages if stage.status == "not reached"), report.stages[-1])
    message = f"the run did not end within {timeout_s:g} s; raise --timeout, or see the end of the log"
    stage.status = "ok"
    stage.fail(message)
    report.error = FirstError(stage=stage.name, type="TimeoutError", message=message)
    return report


def _read_metrics(path: Path) -> dict[str, float]:
    lines = path.read_text().splitlines() if path.is_file() else []
    return json.loads(lines[-1])["data"] if lines else {}
