"""What a trainer knows of a batch and its advantage estimator cannot be told by arguments: it holds for one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.algorithms.losses.implicit_reward import ImplicitRewardSettings


@dataclass
class Handover:
    """What a trainer hands over beside the arguments of verl's estimators."""

    columns: dict[str, Any] = field(default_factory=dict)
    """Optional columns of `CreditBatch`."""
    implicit_reward: ImplicitRewardSettings | None = None
    """How token rewards of a model in the place of verl's reference are added to those of the task."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Where the metrics of credit go."""
    for_metrics: dict[str, Any] = field(default_factory=dict)
    """Columns that metrics may know and estimators may not."""


_current: ContextVar[Handover | None] = ContextVar("handover", default=None)


@contextlib.contextmanager
def handed_over(handover: Handover) -> Iterator[None]:
    """Hands it to the estimators that are called inside of this context."""
    token = _current.set(handover)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def told_to_metrics(metrics: dict[str, Any], columns: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Lets metrics of credit come out under a trainer that hands nothing over.

    Args:
        metrics: takes them.
        columns: what they may know; called when nothing has been handed over.
    """
    if _current.get() is not None:
        yield
        return
    with handed_over(Handover(metrics=metrics, for_metrics=columns())):
        yield


def current_handover() -> Handover:
    """Returns what has been handed over; empty under a trainer that hands nothing over."""
    return _current.get() or Handover()
