"""What a trainer knows of a batch and its advantage estimator cannot be told by arguments: it holds for one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.algorithms.losses.implicit_reward import ImplicitRewardSettings


@dataclass
class TrainerContext:
    """What a trainer hands over beside the arguments of verl's estimators."""

    columns: dict[str, Any] = field(default_factory=dict)
    """Optional columns of `CreditBatch`."""
    implicit_reward: ImplicitRewardSettings | None = None
    """How token rewards of a model in the place of verl's reference are added to those of the task."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Where the metrics of credit go."""
    for_metrics: dict[str, Any] = field(default_factory=dict)
    """Columns that metrics may know and estimators may not."""


_current: ContextVar[TrainerContext | None] = ContextVar("context", default=None)


@contextlib.contextmanager
def use_context(context: TrainerContext) -> Iterator[None]:
    """Hands it to the estimators that are called inside of this context."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def metrics_only_context(metrics: dict[str, Any], columns: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Lets metrics of credit come out under a trainer that hands nothing over.

    Args:
        metrics: takes them.
        columns: what they may know; called when nothing has been handed over.
    """
    if _current.get() is not None:
        yield
        return
    with use_context(TrainerContext(metrics=metrics, for_metrics=columns())):
        yield


def current_context() -> TrainerContext:
    """Returns what has been handed over; empty under a trainer that hands nothing over."""
    return _current.get() or TrainerContext()
