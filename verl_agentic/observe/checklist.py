"""The checks of a diagnosis, in reading order, and what explains what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import LOG_PROBS_MISALIGNED, Finding, unknown
from verl_agentic.base.registry import load_address
from verl_agentic.base.settings import read_settings
from verl_agentic.observe.diagnosis.check import Check, load_check
from verl_agentic.observe.diagnosis.evidence import RunEvidence
from verl_agentic.observe.health.monitor import HealthMonitor, HealthSettings

CHECKLIST = (
    *("reward_zeros", "truncation", "mask", "kl_blowup", "entropy_collapse", "zero_signal_groups"),
    *("tool_use_collapse", "invalid_calls", "tool_distribution", "base_too_weak", "prompt_variance"),
)
"""The checklist for a run that does not learn; an early fault causes later ones."""
LINES = (
    *CHECKLIST,
    *("infra_errors", "stop_reasons", "waiting", "rollout_mismatch", "stale_weights", "credit_horizon"),
    *("reward_part_takeover", "reward_hacking", "grader", "task_variety", "learning", "validation", "time_spent"),
    *("memory_growth", "first_errors"),
)
HEALTH = "health"
"""The line with all alarms over the whole history; those without a line of their own are only there."""
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "zero_signal_groups": ("reward_zeros", "grader", "tool_distribution"),
    "base_too_weak": ("reward_zeros", "tool_distribution", "zero_signal_groups"),
    "reward_zeros": ("truncation", "tool_distribution"),
    "rollout_mismatch": ("mask", "stale_weights"),
    "tool_distribution": ("invalid_calls",),
    "learning": (
        *("reward_zeros", "truncation", "mask", "kl_blowup", "entropy_collapse", "zero_signal_groups"),
        *("tool_use_collapse", "invalid_calls", "tool_distribution", "base_too_weak", "infra_errors", "waiting"),
        *("rollout_mismatch", "stale_weights", "reward_part_takeover", "grader", "task_variety", "run_state"),
    ),
}
"""Check -> checks whose failure explains its own, the nearest first."""
_EXPLAINS_ZEROS = 0.9
"""Minimum share of truncated episodes that explains a reward of 0 in all episodes."""
_SECTION = "actor_rollout_ref.rollout.custom.agentic.health"
_MAX_ALARMS = 4


def diagnose(run: RunEvidence, addresses: Sequence[str] = ()) -> dict[str, Finding]:
    """Returns a finding per check, in order; the user's own checks, which are given by address, come last.

    A failure that follows from another one becomes a warning that names it, so that every failure is one to fix.
    Alarms have the thresholds of the run. An alarm that a line reports is only named in the line of all alarms.
    """
    settings = _read_settings(run)
    monitor = HealthMonitor(settings)
    raised = [finding.to_dict() for row in run.steps for finding in monitor.observe(row["step"], row)]
    findings: dict[str, Finding] = {}
    for name in LINES:
        finding = load_check(name).diagnose(run, **settings.thresholds.get(name, {}))
        since = monitor.since(name) if finding.status in ("warn", "fail") else None
        words = "" if since is None else f"; since step {since}"
        findings[name] = replace(finding, check=name, found=finding.found + words)
    findings[HEALTH] = _summarise_alarms(run, monitor, raised, findings)
    findings["run_state"] = replace(load_check("run_state").diagnose(run), check="run_state")
    explained = {name: _explain_finding(name, finding, findings) for name, finding in findings.items()}
    return explained | {address: replace(_run_own_check(address, run), check=address) for address in addresses}


def title(name: str) -> str:
    """Returns the title of a line."""
    return "health alarms" if name == HEALTH else name if ":" in name else name.replace("_", " ")


def exit_code(verdicts: Mapping[str, Finding]) -> int:
    """Returns 0 when nothing failed, 1 when something did, and 2 when there was nothing to diagnose."""
    if not verdicts:
        return 2
    return int(any(verdict.status == "fail" for verdict in verdicts.values()))


def _run_own_check(address: str, run: RunEvidence) -> Finding:
    check = load_address(address, what="check") if ":" in address else load_check(address)
    return check.diagnose(run) if isinstance(check, Check) else check(run)


def _read_settings(run: RunEvidence) -> HealthSettings:
    section = run.setting(_SECTION)
    try:
        return read_settings(HealthSettings, section if isinstance(section, dict) else {}, section=_SECTION)
    except ConfigError:
        # Options of another version of the alarms: use the defaults.
        return HealthSettings()


def _summarise_alarms(
    run: RunEvidence, monitor: HealthMonitor, raised: Sequence[Mapping[str, Any]], lines: Mapping[str, Finding]
) -> Finding:
    """Returns the alarms that were raised during the run, or are raised when its metrics are replayed."""
    logged = [finding for finding in run.findings if not str(finding.get("name")).startswith("audit/")]
    if not run.steps and not logged:
        return unknown("there are neither metrics nor health.jsonl")
    keys = {(finding.get("name"), finding.get("step")) for finding in logged}
    findings = [*logged, *(finding for finding in raised if (finding["name"], finding["step"]) not in keys)]
    serious = [finding for finding in findings if finding.get("level") != "log"]
    if not serious:
        summary = f"no alarm in {len(run.steps)} steps"
        summary += f"; {len(findings)} noted" if findings else ""
        summary += f"; without their metrics: {', '.join(monitor.missing)}" if monitor.missing else ""
        return Finding(check=HEALTH, status="ok", found=summary)
    latest = {str(finding.get("name")): finding for finding in serious}
    has_line = {name for name in latest if name in lines and lines[name].status in ("warn", "fail")}
    words = [
        f"{name} at step {finding.get('step')}: "
        + (f"see the line `{title(name)}`" if name in has_line else str(finding.get("message")))
        for name, finding in latest.items()
    ]
    advice = (str(finding.get("advice") or "") for name, finding in latest.items() if name not in has_line)
    return Finding(
        check=HEALTH,
        status="fail" if any(finding.get("level") == "stop" for finding in serious) else "warn",
        found="; ".join(words[:_MAX_ALARMS]) + (f"; {len(words) - _MAX_ALARMS} more" if words[_MAX_ALARMS:] else ""),
        advice=next(advice, ""),
        evidence={"alarms": sorted(latest), "findings": len(findings)},
    )


def _explain_finding(name: str, verdict: Finding, verdicts: Mapping[str, Finding]) -> Finding:
    causes = (cause for cause in _CAUSES.get(name, ()) if _explains_failure(name, cause, verdicts[cause]))
    cause = next(causes, None)
    if verdict.status != "fail" or cause is None or verdict.evidence.get("is_frozen"):
        return verdict
    return replace(verdict, status="warn", advice=f"this follows from the line `{title(cause)}`: fix that first")


def _explains_failure(name: str, cause: str, verdict: Finding) -> bool:
    """Returns whether a check has failed in a way that causes the failure of another."""
    if verdict.status != "fail" or name == "learning":
        return verdict.status == "fail"
    if cause == "truncation":
        return verdict.evidence["cut_share"] >= _EXPLAINS_ZEROS
    if cause == "mask":
        return LOG_PROBS_MISALIGNED in verdict.evidence
    if cause == "tool_distribution":
        return bool(verdict.evidence.get("tools_fail"))
    return True
