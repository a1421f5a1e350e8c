"""Check: the age of the weights that sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.diagnosis.series import Series, since

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_STALE_STEPS = 8
"""Steps with one version of the weights. Asynchronous trainers keep one for a few steps."""


@record_check
def stale_weights(run: RunEvidence) -> Finding:
    """Returns for how many steps episodes were sampled with the newest weights that have arrived."""
    episodes = run.episodes[run.episodes["weights_max"].notna()]
    newest = episodes["weights_max"].groupby(episodes["step"]).max()
    versions: Series = [(int(step), float(version)) for step, version in newest.items()]
    if not versions:  # the age in versions grows by one a step if no new one arrives
        ages = run.series("training/off_policy/trajectory_staleness/mean")
        versions = [(step, step - age) for step, age in ages]
    if not versions:
        return unknown("versions of weights are unknown: no trajectories, no training/off_policy/*")
    last = versions[-1][1]
    first = since(versions, lambda version: abs(version - last) < 0.5) or versions[0][0]
    num_steps = sum(step >= first for step, _ in versions)
    return judged(
        "fail" if num_steps >= _STALE_STEPS else "ok",
        found=f"steps {first} to {versions[-1][0]} were sampled with the same weights (version {last:g})",
        advice="the rollout server gets no new weights, so the trained policy is never sampled: see its log, test the "
        "transfer (verl-agentic dryrun), and check actor_rollout_ref.rollout.checkpoint_engine",
        evidence={"version": last, "stale_steps": float(num_steps)},
        look_at=keys_of(episodes),
    )
