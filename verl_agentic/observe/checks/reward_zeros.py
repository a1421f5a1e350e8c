"""Check: rewards of 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.diagnosis.series import RECENT_STEPS, Series, since

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_RARE = 0.95
"""Above this share of episodes with reward 0, most groups have no signal."""
_FROM_START = (
    "read a few episodes. If some of them are right, the grader is wrong: run `verl-agentic reward audit` and check "
    "agentic.rubric (or reward.custom_reward_function) against ground_truth. If none is right, the base is too weak: "
    "warm it up (SFT), or use easier data.train_files"
)
_LATER = "find the change at that step: a resumed checkpoint, other rows, a grader or judge that does not answer"


@record_check
def reward_zeros(run: RunEvidence) -> Finding:
    """Returns the share of recent rewards that are 0."""
    scored = run.valid[run.valid["reward"].notna()]
    if len(scored):
        share = float((scored["reward"] == 0).mean())
        series = _find_largest_rewards(run)
        scope = f"of {len(scored)} episodes in steps {scored['step'].min()}-{scored['step'].max()}"
        look_at = keys_of(scored[scored["reward"] == 0])
    else:
        series = _find_extremes(run)
        if not series:
            return unknown("rewards are unknown: neither trajectories nor critic/score/max and critic/score/min")
        recent = [value for _, value in series[-RECENT_STEPS:]]
        share = sum(value == 0 for value in recent) / len(recent)
        scope, look_at = f"of the last {len(recent)} steps have no reward but 0 (critic/score)", ()
        if share < 1:
            return Finding(status="ok", found=f"{share:.0%} {scope}", evidence={"zero_share": share})
    evidence = {"zero_share": share}
    if share == 1:
        first = since(series, lambda value: value == 0)
        is_old = first is not None and first > series[0][0]
        message = f"all rewards are 0: 100% {scope}, since {f'step {first}' if is_old else 'the beginning'}"
        return Finding(
            status="fail", found=message, advice=_LATER if is_old else _FROM_START, evidence=evidence, look_at=look_at
        )
    nonfinite = sum(value for _, value in run.series("credit/nonfinite_sessions")[-RECENT_STEPS:])
    if nonfinite:
        message = f"{nonfinite:g} sessions of the last {RECENT_STEPS} steps have a reward that is NaN or infinite"
        return Finding(
            status="warn", found=message, advice="fix the scorer: `verl-agentic reward audit`", evidence=evidence
        )
    message = f"reward is 0 in {share:.0%} {scope}"
    if share > _RARE:
        return Finding(status="warn", found=message, advice=_FROM_START, evidence=evidence, look_at=look_at)
    return Finding(status="ok", found=message, evidence=evidence)


def _find_largest_rewards(run: RunEvidence) -> Series:
    """Returns the largest absolute reward of every step."""
    episodes = run.episodes[~run.episodes["is_void"].astype(bool) & run.episodes["reward"].notna()]
    largest = episodes["reward"].abs().groupby(episodes["step"]).max()
    return [(int(step), float(value)) for step, value in zip(largest.index, largest.to_numpy(), strict=True)]


def _find_extremes(run: RunEvidence) -> Series:
    low = dict(run.series("critic/score/min"))
    return [(step, max(abs(high), abs(low[step]))) for step, high in run.series("critic/score/max") if step in low]
