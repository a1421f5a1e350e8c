"""Line 22: the health alarms over the whole history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence
from verl_agentic.diagnostics.health.monitor import HealthMonitor, HealthSettings
from verl_agentic.errors import ConfigError
from verl_agentic.finding import Finding, unknown
from verl_agentic.settings import read_settings

_SECTION = "actor_rollout_ref.rollout.custom.agentic.health"
_MOST = 4


def health(run: RunEvidence, *, said: Mapping[str, str] | None = None) -> Finding:
    """Returns the findings of the alarms during the run, and in its metrics now.

    Args:
        run: the evidence.
        said: advice -> title of the line that gives it. An alarm with the same advice is only named.
    """
    if not run.metrics and not run.findings:
        return unknown("there are neither metrics nor health.jsonl")
    monitor = HealthMonitor(_settings(run))
    replayed = [finding.to_dict() for row in run.metrics for finding in monitor.observe(row["step"], row)]
    noted = [finding for finding in run.findings if not str(finding.get("name")).startswith("audit/")]
    known = {(finding.get("name"), finding.get("step")) for finding in noted}
    findings = [*noted, *(f for f in replayed if (f["name"], f["step"]) not in known)]
    serious = [finding for finding in findings if finding.get("level") != "log"]
    if not serious:
        found = f"no alarm in {len(run.metrics)} steps"
        found += f"; {len(findings)} noted" if findings else ""
        found += f"; without their metrics: {', '.join(monitor.missing)}" if monitor.missing else ""
        return Finding(status="ok", found=found)
    latest: dict[str, dict[str, Any]] = {str(finding.get("name")): finding for finding in serious}
    lines = {name: (said or {}).get(str(finding.get("advice"))) for name, finding in latest.items()}
    told = [
        f"{name} at step {finding.get('step')}: "
        + (f"see the line `{lines[name]}`" if lines[name] else str(finding.get("message")))
        for name, finding in latest.items()
    ]
    advice = (str(finding.get("advice") or "") for name, finding in latest.items() if not lines[name])
    return Finding(
        status="fail" if any(finding.get("level") == "stop" for finding in serious) else "warn",
        found="; ".join(told[:_MOST]) + (f"; {len(told) - _MOST} more" if len(told) > _MOST else ""),
        advice=next(advice, ""),
        evidence={"alarms": sorted(latest), "findings": len(findings)},
    )


def _settings(run: RunEvidence) -> HealthSettings:
    section = run.setting(_SECTION)
    try:
        return read_settings(HealthSettings, section if isinstance(section, dict) else {}, section=_SECTION)
    except ConfigError:
        # Options of another version of the alarms: use the defaults.
        return HealthSettings()
