"""Line 13: shares of the reward's parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, Series, ends
from verl_agentic.diagnostics.health.alarm import REWARD
from verl_agentic.diagnostics.thresholds import PART_ADVICE, PART_SHARE, has_risen
from verl_agentic.finding import Finding, unknown

_PREFIX, _VARIANCE, _OUTCOME = "episode/weighted/", "batch/shaping_share/", "batch/outcome_share"
_SIZE = 0.01
"""Minimum mean reward of a takeover."""


def reward_parts(run: RunEvidence) -> Finding:
    """Returns each part's share of the reward; a shaping part must not be most of it.

    Uses the share of the reward's variance among episodes if it was logged (`batch/shaping_share/*`), else the share of
    the absolute rewards.
    """
    series = {name.removeprefix(_PREFIX): run.series(name) for name in run.names(_PREFIX)}
    moves = {name: ends(points) for name, points in series.items() if points}
    shares, measure = _variance(run), "variance"
    if not moves and not shares:
        return unknown(f"parts of the reward were not logged ({_PREFIX}*): a rubric logs them (agentic.rubric)")
    if not shares:
        shares, measure = _mass(run, series, moves), "mass"
    listed = [f"{name} {before:.3g} -> {now:.3g}" for name, (before, now) in moves.items() if before or now]
    outcome = run.series(*REWARD)
    top = max(shares, key=lambda name: shares[name], default="")
    found = ", ".join(listed) or "all parts are 0"
    found += f"; {top} is {shares[top]:.0%} of its {measure}" if top else ""
    evidence = {f"share/{name}": share for name, share in shares.items()}
    status = PART_SHARE.judge(shares[top]) if top else "ok"
    outcomes = run.series(_OUTCOME) if measure == "variance" else []
    is_less = bool(outcomes) and shares.get(top, 0.0) <= ends(outcomes)[1]
    if status == "ok" or is_less or (outcome and has_risen(*ends(outcome))):
        return Finding(status="ok", found=found, evidence=evidence)
    found += f"; the outcome went {ends(outcome)[0]:.2f} -> {ends(outcome)[1]:.2f}" if outcome else ""
    return Finding(
        status=status,
        found=found,
        advice=PART_ADVICE.format(part=top),
        evidence=evidence,
    )


def _variance(run: RunEvidence) -> dict[str, float]:
    """Returns every shaping part's share of the reward's variance, if it was logged."""
    series = {name.removeprefix(_VARIANCE): run.series(name) for name in run.names(_VARIANCE)}
    return {name: ends(points)[1] for name, points in series.items() if points}


def _mass(run: RunEvidence, series: Mapping[str, Series], moves: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Returns every shaping part's share of the absolute rewards; empty if they are near 0."""
    total = sum(abs(now) for _, now in moves.values())
    if total < _SIZE or len(moves) < 2:
        return {}
    return {name: abs(now) / total for name, (_, now) in moves.items() if not _is_outcome(run, name, series[name])}


def _is_outcome(run: RunEvidence, name: str, part: Series) -> bool:
    """Returns whether a part is an outcome: the rubric declares it, or it is proportional to `acc`."""
    components = run.setting("reward.rubric.components")
    for component in components if isinstance(components, list) else ():
        if name in (component.get("name"), component.get("use")) and component.get("kind"):
            return component["kind"] == "outcome"
    told = dict(run.series("episode/acc"))
    pairs = [(value, told[step]) for step, value in part if step in told]
    if not pairs:
        return False
    values, accs = np.asarray(pairs).T
    factor = values @ accs / (accs @ accs) if accs.any() else 0.0
    return bool(np.allclose(values, factor * accs, atol=0.02 * max(1e-9, abs(values).max()))) and factor > 0
