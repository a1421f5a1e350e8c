"""Filters of groups, and their metrics."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_FILTER = "algorithm.filter_groups"
_SAMPLER = "trainer.v1.sampler"
_REWARD = "reward"


def dynamic_sampling(run: PlannedRun) -> list[Finding]:
    """Returns filters that would wait forever, or filter by a shaped reward."""
    findings: list[Finding] = []
    gates = run.get(f"{_SAMPLER}.sampler_kwargs.gates")
    if run.get(f"{_FILTER}.enable") and not run.get(f"{_SAMPLER}.custom_sampler.path"):
        findings += _check_metric(run)
    return findings or [ok("groups are filtered" if gates or run.get(f"{_FILTER}.enable") else "no group is filtered")]


def _check_metric(run: PlannedRun) -> list[Finding]:
    metric = run.get(f"{_FILTER}.metric")
    if metric is None:
        return [fail(f"{_FILTER}.enable is set without a metric", f"set {_FILTER}.metric=acc")]
    if metric == _REWARD:
        return [
            warn(
                f"{_FILTER}.metric=reward filters by the shaped reward: groups that differ in shaping alone pass",
                f"set {_FILTER}.metric=acc",
            )
        ]
    if run.metrics is None:
        return [not_tested(f"whether the reward returns {_FILTER}.metric={metric}", "see the line reward")]
    if metric not in run.metrics:
        metric_names = sorted(name for name in run.metrics if "/" not in name or name.startswith("reward/"))
        return [
            fail(
                f"{_FILTER}.metric={metric} is not returned by any reward: the first finished group ends the run",
                f"use acc, reward, or another of {metric_names}",
            )
        ]
    return []
