"""Check: whether the run ended, is running, or died."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.series import recent_mean

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_QUIET_S = 120.0
"""A run that has written nothing for longer, and for longer than three of its steps, is not running."""
_GONE_S = 1800.0
"""A run in its first step that has written nothing for longer has died."""
_DONE = ("Final validation metrics", "Training Progress: 100%")
_STEP_S = ("timing_s/step", "perf/time_per_step")
_ERROR = re.compile(r"^\S*(?:Error|Exception|Killed)\b.*$", re.MULTILINE)


@record_check
def run_state(run: RunEvidence) -> Finding:
    """Returns whether the run ended, is running or died, with the evidence."""
    if run.touched is None:
        return unknown("the folder is empty")
    quiet_s, total = run.now - run.touched, run.setting("trainer.total_training_steps")
    step = f"step {run.last_step}" + (f" of {total}" if total else "")
    evidence = {"step": run.last_step, "total_steps": total, "quiet_s": quiet_s}
    if has_ended(run):
        return Finding(status="ok", found=f"ended at {step}", evidence={**evidence, "state": "ended"})
    if is_running(run):
        message = f"running: {step}, last file written {quiet_s:.0f} s ago"
        return Finding(status="ok", found=message, evidence={**evidence, "state": "running"})
    signs = _find_signs_of_death(run)
    ago = f"{quiet_s / 60:.0f} min ago"
    if not signs:
        message = f"stopped at {step}, {ago}; it may have ended or died (no ended.jsonl)"
        return Finding(status="unknown", found=message, evidence={**evidence, "state": "stopped"})
    return Finding(
        status="fail",
        found=f"died at {step}, {ago}: {'; '.join(signs)}",
        advice="see the line `first errors`. Without errors it was killed: by memory (dmesg), a time limit or Ctrl-C. "
        "trainer.resume_mode=auto continues from the last checkpoint",
        evidence={**evidence, "state": "died"},
    )


def is_running(run: RunEvidence) -> bool:
    """Returns whether the run is alive: it has not reached its end, and files were written recently."""
    if run.touched is None or has_ended(run):
        return False
    times = run.series(*_STEP_S)
    patience_s = max(_QUIET_S, 3 * recent_mean(times)) if times else _QUIET_S
    return run.now - run.touched <= patience_s


def has_ended(run: RunEvidence) -> bool:
    """Returns whether the run has made all its steps, or recorded its end."""
    if run.ended is not None:
        return run.ended
    total = run.setting("trainer.total_training_steps")
    return bool(total and run.last_step >= total) or any(sign in run.output for sign in _DONE)


def _find_signs_of_death(run: RunEvidence) -> list[str]:
    """Returns signs that the run died; empty if there are only errors and reports, which good runs leave, too."""
    total = run.setting("trainer.total_training_steps")
    signs = [f"{run.last_step} of {total} steps were made"] if total else []
    has_gone = run.touched is not None and run.now - run.touched > _GONE_S
    if run.ended is False and (run.series(*_STEP_S) or has_gone):
        signs.append("its end was not recorded")
    if cut := run.cut_off_files:
        signs.append(f"{cut[0].name} ends in the middle of a record")
    if raised := _ERROR.findall(run.output):
        signs.append(f"its output ends with {raised[-1][:160]}")
    if signs and run.waiting:
        signs.append(f"{sum(len(report['episodes']) for report in run.waiting)} episodes were still waiting")
    if signs and run.errors:
        signs.append(f"{len(run.errors)} kinds of errors were logged")
    return signs
