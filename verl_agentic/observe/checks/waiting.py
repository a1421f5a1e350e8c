"""Check: episodes that wait in a running run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import Finding
from verl_agentic.observe.checks.run_state import has_ended, is_running
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.live.stuck_episodes import WaitingOptions, describe, is_fresh

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_SECTION = "actor_rollout_ref.rollout.custom.agentic.waiting"
_TIMES = 5.0
"""A wait fails above this multiple of `stuck_after_s`."""
_BLOCKED_S = 10.0
_MOST = 3
_DEADLINES = (
    "give the tool a deadline (timeout_s), or lower agentic.limits.turn_timeout_s: then the episode "
    "becomes void and its siblings continue; see the tool's own log, or inspect its process with py-spy"
)


@record_check
def waiting(run: RunEvidence) -> Finding:
    """Returns the episodes that have waited longest, with cause and duration."""
    is_alive = is_running(run)
    # A run that hangs writes nothing more, so reports count that were fresh when its last file was written.
    reports = [report for report in run.waiting if is_fresh(report, now_at=run.touched or 0.0)]
    episodes = _list_waiting(run, reports, is_alive=is_alive)
    if not episodes:
        why = f"{len(run.waiting)} reports are old: their workers have ended" if run.waiting else "no waiting-*.json"
        return Finding(status="ok", found=f"no episode waits ({why})")
    if not is_alive and has_ended(run):
        message = f"{len(episodes)} episodes waited when the run ended: {describe(episodes[0])}"
        return Finding(status="ok", found=message, evidence={"waiting": len(episodes), "oldest": episodes[0]})
    limit_s = run.setting(f"{_SECTION}.stuck_after_s") or WaitingOptions().stuck_after_s
    oldest, blocked = episodes[0], [r for r in reports if r.get("loop_lag_s", 0.0) > _BLOCKED_S]
    state = "wait" if is_alive else "waited when the run was last alive"
    message = f"{len(episodes)} episodes {state}: {'; '.join(describe(episode) for episode in episodes[:_MOST])}"
    evidence = {"waiting": len(episodes), "oldest": oldest, "age_s": oldest["age_s"]}
    if blocked:
        frames = "; ".join(str(frame).strip() for frame in list(blocked[0].get("blocked_by") or ())[-2:])
        message += f"; the event loop of process {blocked[0].get('pid')} is blocked ({frames})"
        advice = "code of an environment or reward blocks the worker's event loop: await it, or run it in a thread"
        return Finding(status="fail", found=message, advice=advice, evidence=evidence)
    if oldest["age_s"] < limit_s:
        return Finding(status="ok", found=message, evidence=evidence)
    status = "fail" if oldest["age_s"] >= _TIMES * limit_s else "warn"
    return Finding(status=status, found=message, advice=_DEADLINES, evidence=evidence)


def _list_waiting(run: RunEvidence, reports: list[dict[str, Any]], *, is_alive: bool) -> list[dict[str, Any]]:
    """Returns the waiting episodes, with their age now, or at the end of a finished run."""
    episodes = []
    for report in reports:
        later_s = max(0.0, run.now - report.get("time", run.now)) if is_alive else 0.0
        episodes += [{**episode, "age_s": episode["age_s"] + later_s} for episode in report["episodes"]]
    return sorted(episodes, key=lambda episode: -episode["age_s"])
