"""Methods of the study of long episodes: estimators of credit, each with and without rewards for subgoals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from _credit_methods import Method

SUBGOALS = "_subgoals"
"""Suffix of the methods with rewards for subgoals."""
_CRITIC = ("critic.enable=true", "critic.optim.lr=1e-3")
_DENSE = "agentic.env_config.dense_reward=0.5"


def _method(name: str, title: str, estimator: str, *others: str, needs_critic: bool = False) -> Method:
    overrides = (f"algorithm.adv_estimator={estimator}", *others)
    return Method(name=name, title=title, overrides=overrides, needs_critic=needs_critic)


SPARSE = (
    _method("grpo", "GRPO (verl's)", "grpo"),
    _method("rloo", "RLOO (`safe_rloo`)", "safe_rloo"),
    _method("gigpo", "GiGPO (`gigpo`)", "gigpo"),
    _method("salt", "SALT (`salt`)", "salt"),
    _method("turn_gae", "turn-level GAE, with a critic (`turn_gae`)", "turn_gae", *_CRITIC, needs_critic=True),
    _method("step_critic", "step critic (`step_critic`)", "step_critic", *_CRITIC, needs_critic=True),
    _method("spa", "SPA (`spa`)", "spa"),
    _method("arpo", "ARPO branching (`arpo`)", "arpo", "agentic.branching.initial=4"),
)
DENSE = tuple(
    dataclasses.replace(method, name=f"{method.name}{SUBGOALS}", overrides=(*method.overrides, _DENSE))
    for method in SPARSE
)
METHODS = (*SPARSE, *DENSE)


def named(names: Sequence[str]) -> list[Method]:
    """Returns methods by name."""
    known = {method.name: method for method in METHODS}
    return [known[name] for name in names]
