"""The lines of a diagnosis, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence
from verl_agentic.finding import LOG_PROBS_MISALIGNED, Finding
from verl_agentic.registry import Registry

_REGISTRY = Registry[Callable[..., Finding]](
    package="verl_agentic.diagnostics.diagnosis.checks", what="diagnosis", kind=FunctionType
)
load_diagnosis = _REGISTRY.load
CHECKS: Mapping[str, str] = {
    "reward_zeros": "reward zeros",
    "length_truncation": "length truncation",
    "mask": "mask",
    "kl_entropy": "KL and entropy",
    "group_std": "group std",
    "tool_distribution": "tool distribution",
    "prompt_variance": "reward variance per prompt",
    "infrastructure": "infrastructure",
    "stop_reasons": "stop reasons",
    "waiting": "waiting",
    "rollout_mismatch": "rollout to trainer",
    "credit_horizon": "credit over turns",
    "reward_parts": "reward parts",
    "reward_hacking": "reward hacking",
    "grader": "grader",
    "task_variety": "task variety",
    "learning": "learning",
    "validation": "validation",
    "time_spent": "time",
    "memory": "memory",
    "first_errors": "first errors",
    "health": "health alarms",
    "run_state": "run",
}
"""Check -> title. The first seven are the checklist for a run that does not learn; an early fault causes later ones."""
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "group_std": ("reward_zeros", "grader", "tool_distribution"),
    "prompt_variance": ("reward_zeros", "tool_distribution", "group_std"),
    "reward_zeros": ("length_truncation", "tool_distribution"),
    "rollout_mismatch": ("mask",),
    "learning": (
        *("reward_zeros", "length_truncation", "mask", "kl_entropy", "group_std", "tool_distribution"),
        *("prompt_variance", "infrastructure", "waiting", "rollout_mismatch", "reward_parts", "grader"),
        *("task_variety", "run_state"),
    ),
}
"""Check -> checks whose failure explains its own, the nearest first."""
_EXPLAINS_ZEROS = 0.9
"""Minimum share of truncated episodes that explains a reward of 0 in all episodes."""


def diagnose(run: RunEvidence, own: Sequence[str] = ()) -> dict[str, Finding]:
    """Returns a finding per check, in order; the user's own checks, which are given by address, come last.

    A failure that follows from another one becomes a warning that names it, so that every failure is one to fix.
    A fault that a line and an alarm both found is reported in the line only.
    """
    findings: dict[str, Finding] = {}
    for name in CHECKS:
        said = {finding.advice: CHECKS[line] for line, finding in findings.items() if finding.advice}
        options = {"said": said} if name == "health" else {}
        findings[name] = replace(load_diagnosis(name)(run, **options), check=name)
    explained = {name: _explained(name, finding, findings) for name, finding in findings.items()}
    return explained | {address: replace(load_diagnosis(address)(run), check=address) for address in own}


def exit_code(verdicts: Mapping[str, Finding]) -> int:
    """Returns 0 when nothing failed, 1 when something did, and 2 when there was nothing to diagnose."""
    if not verdicts:
        return 2
    return int(any(verdict.status == "fail" for verdict in verdicts.values()))


def _explained(name: str, verdict: Finding, verdicts: Mapping[str, Finding]) -> Finding:
    causes = (cause for cause in _CAUSES.get(name, ()) if _explains(name, cause, verdicts[cause]))
    cause = next(causes, None)
    if verdict.status != "fail" or cause is None or verdict.evidence.get("is_frozen"):
        return verdict
    return replace(verdict, status="warn", advice=f"this follows from the line `{CHECKS[cause]}`: fix that first")


def _explains(name: str, cause: str, verdict: Finding) -> bool:
    """Returns whether a check has failed in a way that causes the failure of another."""
    if cause == "length_truncation" and name != "learning":
        return verdict.status == "fail" and verdict.evidence["cut_share"] >= _EXPLAINS_ZEROS
    if cause == "mask" and name == "rollout_mismatch":
        return verdict.status == "fail" and LOG_PROBS_MISALIGNED in verdict.evidence
    if cause == "tool_distribution" and name != "learning":
        return verdict.status == "fail" and bool(verdict.evidence.get("tools_fail"))
    return verdict.status == "fail"
