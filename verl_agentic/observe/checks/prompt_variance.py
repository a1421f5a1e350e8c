"""Check: variance of the reward per prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.series import recent_mean

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_ONE_SIDED = 0.9


@record_check
def prompt_variance(run: RunEvidence) -> Finding:
    """Returns the shares of prompts that are never, sometimes and always solved."""
    series = [run.series(f"curriculum/{name}_solved_share") for name in ("never", "always")]
    if not all(series):
        return unknown("outcomes of four prompts are not known: no trajectories, no curriculum/never_solved_share")
    never, always = map(recent_mean, series)
    return judged(
        "warn" if never + always >= _ONE_SIDED else "ok",
        found=f"of the prompts seen, {never:.0%} were never solved, {always:.0%} always, {1 - never - always:.0%} "
        "sometimes",
        advice="hardly any prompt is solved sometimes: agentic.curriculum.name=learnability draws those; "
        + ("easier rows or an SFT warm start make" if never > always else "harder rows make")
        + " more of them",
        evidence={"never_solved_share": never, "always_solved_share": always},
    )
