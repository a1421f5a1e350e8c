"""Sampling parameters."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_ROLLOUT = "actor_rollout_ref.rollout"


def sampling(run: PlannedRun) -> list[Finding]:
    """Returns settings that make the samples of a prompt equal."""
    temperature, top_p = run.number(f"{_ROLLOUT}.temperature", 1.0), run.number(f"{_ROLLOUT}.top_p", 1.0)
    findings = []
    if temperature <= 0:
        findings.append(
            fail(
                f"training samples with {_ROLLOUT}.temperature={temperature:g}: all samples of a prompt are the same, "
                "and the trainer divides logits by it",
                f"set {_ROLLOUT}.temperature=1.0; validation has {_ROLLOUT}.val_kwargs.temperature",
            )
        )
    if not 0 < top_p <= 1:
        findings.append(fail(f"{_ROLLOUT}.top_p must be above 0 and at most 1, got {top_p:g}", "set it to 1.0"))
    attempts, greedy = run.number(f"{_ROLLOUT}.val_kwargs.n", 1), run.number(f"{_ROLLOUT}.val_kwargs.temperature", 0.0)
    if attempts > 1 and greedy <= 0:
        findings.append(
            warn(
                f"validation repeats the same greedy samples {attempts:g} times, got "
                f"{_ROLLOUT}.val_kwargs.temperature={greedy:g}",
                f"set {_ROLLOUT}.val_kwargs.n=1, or a temperature above 0",
            )
        )
    return findings or [ok(f"temperature {temperature:g}, top_p {top_p:g}")]
