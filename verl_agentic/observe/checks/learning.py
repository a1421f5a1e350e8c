"""Check: whether the policy changes, and the reward rises."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.checks.run_state import is_running
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.history import REWARD, has_risen
from verl_agentic.observe.diagnosis.series import Series, ends

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_FROZEN_STEPS = 5
_MIN_STEPS, _LONG = 12, 50
"""Steps from which on a reward that does not rise is a warning, and a failure even while the run goes on."""
_FIRST_STEPS = 5
"""A series that begins later is the rest of a longer run, which may have learnt before."""
_SOLVED = 0.9
"""Outcome from which on a reward need not rise."""
_SURE = 2.0
"""Slope of the reward, in standard errors, from which on it rises."""
_RATE = "actor_rollout_ref.actor.optim.lr"
_FLAT = (
    "see the other lines first. If they are fine: raise the learning rate ({rate}), the samples of a prompt "
    "(actor_rollout_ref.rollout.n) or the steps; check that tasks are neither too hard nor too easy"
)


@record_check
def learning(run: RunEvidence) -> Finding:
    """Returns whether weights are updated, and whether the reward rises over the run."""
    rates, outcome = run.series("actor/lr"), run.series(*REWARD)
    last = [value for _, value in rates[-_FROZEN_STEPS:]]
    if (len(last) >= _FROZEN_STEPS and not any(last)) or run.setting(_RATE) in (0, 0.0):
        message = "the learning rate is 0" + (f" since step {_find_first_zero(rates)}" if rates else f": {_RATE}=0")
        advice = f"set {_RATE} to about 1e-6; check lr_warmup_steps and trainer.total_training_steps"
        return Finding(status="fail", found=f"{message}: no update changes a weight", advice=advice,
                       evidence={"is_frozen": True})  # fmt: skip
    if len(outcome) < 2:
        return unknown(f"none of {', '.join(REWARD)} was logged")
    before, now = ends(outcome)
    slope = _compute_slope_t(outcome)
    message = f"reward {before:.3g} -> {now:.3g} in {len(outcome)} steps"
    evidence = {"before": before, "now": now, "slope": slope}
    if len(outcome) < _MIN_STEPS or has_risen(before, now) or slope >= _SURE or now >= _SOLVED:
        return Finding(status="ok", found=message, evidence=evidence)
    is_over, is_whole = not is_running(run), outcome[0][0] <= _FIRST_STEPS
    message += ": it does not rise" + (", and the run is over" if is_over else "")
    status = "fail" if is_whole and (is_over or len(outcome) >= _LONG) else "warn"
    return Finding(status=status, found=message, advice=_FLAT.format(rate=_RATE), evidence=evidence)


def _find_first_zero(rates: Series) -> int:
    nonzero = [step for step, value in rates if value]
    return rates[0][0] if not nonzero else nonzero[-1] + 1


def _compute_slope_t(series: Series) -> float:
    """Returns the slope of a line through the values, in its standard errors."""
    steps, values = (np.asarray(column, dtype=float) for column in zip(*series, strict=True))
    if len(steps) < 3:
        return 0.0
    steps = steps - steps.mean()
    slope = float(steps @ values / (steps @ steps))
    residual = values - values.mean() - slope * steps
    error = math.sqrt(float(residual @ residual) / (len(steps) - 2) / float(steps @ steps))
    return slope / error if error > 0 else math.copysign(math.inf, slope) if slope else 0.0
