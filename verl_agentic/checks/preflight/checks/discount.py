"""Discounts of outcomes over an episode."""

from __future__ import annotations

from collections.abc import Iterator

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.credit.advantage import Step, is_advantage, load_advantage
from verl_agentic.credit.credit.discounting import discount_complaint

_OF_TOKENS = {"gae", "reinforce_plus_plus"}
"""verl's estimators that discount by `algorithm.gamma`, token by token."""
_OPTIONS = "algorithm.credit.options"


def discount(run: PlannedRun) -> list[Finding]:
    """Returns the rest of an outcome after the discount; nothing for estimators without a discount."""
    name, gamma = str(run.get("algorithm.adv_estimator")), run.number("algorithm.gamma", 1.0)
    findings = []
    if gamma != 1 and name not in _OF_TOKENS:
        instead = f"set {_OPTIONS}.gamma" if is_advantage(name) else "unset it"
        findings.append(warn(f"algorithm.gamma={gamma} has no effect: {name} does not read it", instead))
    for step, factor in _iter_factors(run, name, gamma):
        steps = _count_max_steps(run, step)
        if factor == 1 or not 0 <= factor < 1 or steps < 1:
            continue
        complaint = discount_complaint(gamma=factor, steps=steps)
        if complaint is None:
            findings.append(ok(f"gamma {factor:g} leaves enough of an outcome after {steps} {step}s"))
        else:
            setting = "algorithm.gamma=1" if name in _OF_TOKENS else f"the discounts in {_OPTIONS} to 1"
            findings.append(warn(complaint, f"set {setting}, or an estimator that discounts turns (turn_gae)"))
    return findings


def _iter_factors(run: PlannedRun, name: str, gamma: float) -> Iterator[tuple[Step, float]]:
    if name in _OF_TOKENS:
        yield "token", gamma
    elif is_advantage(name):
        try:
            estimator, options = load_advantage(name), dict(run.get(_OPTIONS, {}))
            estimator.check_options(options)
        except (ConfigError, ValueError):
            return  # reported by another check
        yield "token", estimator.discount_of(options, "token")
        yield "turn", estimator.discount_of(options, "turn")


def _count_max_steps(run: PlannedRun, step: Step) -> int:
    if step == "token":
        return int(run.number("data.max_response_length"))
    ours = "actor_rollout_ref.rollout.custom.agentic.limits.max_turns"
    theirs = "actor_rollout_ref.rollout.multi_turn.max_assistant_turns"
    return int(run.number(ours, 8) if run.is_ours else run.number(theirs))
