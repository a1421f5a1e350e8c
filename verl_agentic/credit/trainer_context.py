"""Passes extra batch columns from a trainer to the advantage estimator for one call, besides verl's arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch


class AddedRewards(Protocol):
    """Rewards of tokens, in addition to those of the task."""

    def added_to(self, rewards_BT: Tensor) -> Tensor:
        """Returns `[B, T]` the rewards for the estimator."""
        ...

    def metrics(self, batch: CreditBatch) -> dict[str, float]:
        """Returns metrics `credit/*` of these rewards."""
        ...


@dataclass
class TrainerContext:
    """Data that a trainer passes in addition to the arguments of verl's estimators."""

    columns: dict[str, Any] = field(default_factory=dict)
    """Optional columns of `CreditBatch`."""
    token_rewards: Callable[[Any], list[AddedRewards]] = lambda data: []
    """Makes the rewards of tokens for verl's batch of padded columns."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Receives the metrics of credit."""
    for_metrics: dict[str, Any] = field(default_factory=dict)
    """Columns for metrics only, not for estimators."""


_current: ContextVar[TrainerContext | None] = ContextVar("context", default=None)


@contextlib.contextmanager
def use_context(context: TrainerContext) -> Iterator[None]:
    """Passes it to the estimators that are called in this context."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def metrics_only_context(metrics: dict[str, Any], columns: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Collects metrics of credit under a trainer that passes nothing.

    Args:
        metrics: receives the metrics.
        columns: returns columns for metrics; called if the trainer has passed nothing.
    """
    if _current.get() is not None:
        yield
        return
    with use_context(TrainerContext(metrics=metrics, for_metrics=columns())):
        yield


def current_context() -> TrainerContext:
    """Returns the data that the trainer passed; empty under a trainer that passes nothing."""
    return _current.get() or TrainerContext()
