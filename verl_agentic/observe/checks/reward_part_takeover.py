"""Alarm: a shaping part dominates the reward."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import REWARD, History, gain, has_learnt
from verl_agentic.observe.health.alarm import alarm

_SHARES = "batch/shaping_share/"
_OUTCOME = "batch/outcome_share"
_SHARE = Limit(warn=0.5, fail=0.7)


@alarm(reads=(_OUTCOME, _SHARES + "*"), also=REWARD, patience=5)
def reward_part_takeover(history: History, *, share: float = _SHARE.warn, window: int = 10) -> Finding | None:
    """One shaping part has most of the reward's variance, more than the outcome, and the outcome does not rise.

    The policy learns from the variance among episodes, not from the weights in the config.

    Args:
        share: of the reward's variance.
        window: steps whose median is compared, and of the baseline of the outcome.
    """
    outcome = history.level(_OUTCOME, window)
    shares = {name: history.level(name, window) or 0.0 for name in history.matching(_SHARES + "*")}
    if outcome is None or not shares:
        return None
    worst = max(shares, key=lambda name: shares[name])
    is_ok = shares[worst] <= outcome or has_learnt(history, window)
    part, rise = worst.removeprefix(_SHARES), gain(history, window)
    return judged(
        "ok" if is_ok else _SHARE.judge(shares[worst], warn=share),
        found=f"the reward part {part} has {shares[worst]:.0%} of the reward's variance (limit {share:.0%}), the "
        f"outcome {outcome:.0%}",
        evidence={"part": part, "part_share": shares[worst], "outcome_share": outcome}
        | ({"reward_gain": rise} if rise is not None else {}),
        advice=f"lower weight or cap of {part}, or give it only with the outcome (only_if) in "
        "agentic.rubric.components; read episodes that get it without the outcome (verl-agentic reward lab); if no "
        "task is solved, use easier tasks first (agentic.curriculum)",
        check=part,
    )
