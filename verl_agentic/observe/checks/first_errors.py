"""Check: the first errors of the run's processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding
from verl_agentic.observe.checks.run_state import run_state
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.live.root_causes import ErrorRecord

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_MOST = 3
_MAX_CHARS = 160


@record_check
def first_errors(run: RunEvidence) -> Finding:
    """Returns the first errors of the run's processes, the earliest first, each kind once."""
    errors = run.errors
    if not errors:
        return Finding(status="ok", found="no errors were logged (no errors-*.jsonl)")
    message = "; ".join(_describe_error(error) for error in errors[:_MOST])
    message += f"; {len(errors) - _MOST} more" if len(errors) > _MOST else ""
    return Finding(
        status="fail" if run_state.diagnose(run).status == "fail" else "warn",
        found=message,
        advice="fix the first: later ones often follow from it",
        evidence={"kinds": len(errors), "errors": sum(error.count for error in errors)},
    )


def _describe_error(error: ErrorRecord) -> str:
    line = next(iter(error.message.strip().splitlines()), "")[:_MAX_CHARS]
    place = f", {error.where}" if error.where else ""
    return f"{error.type}: {line} ({error.count}x in {error.actor or error.process}{place})"
