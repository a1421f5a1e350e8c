"""How good is a step? Estimated by playing on from it: labels for process reward models, and values of states.

Paper: https://arxiv.org/abs/2312.08935 (Math-Shepherd, eq. 3 and 4)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Sample


@dataclass(frozen=True)
class StepLabel:
    """How good the state after a turn is."""

    value: float
    """From 0 to 1."""
    continuations: int
    """How many rollouts it was estimated from."""


def hard_label(outcomes: Sequence[float]) -> float:
    """Returns 1 when any completion from a step is right, else 0.

    Args:
        outcomes: [N] of the completions that begin with the step, each 0 or 1.

    Raises:
        DataError: there are none, or one is not from 0 to 1.
    """
    return float(any(outcome == 1 for outcome in _checked(outcomes)))


def state_value(outcomes: Sequence[float]) -> float:
    """Returns the value of the state after a step: the share of K continuations from it that succeed. The soft label.

    Its standard error is sqrt(v (1 - v) / K): with K = 4, a quarter at v = 0.5.

    Args:
        outcomes: [K] of the continuations, each 0 or 1, or a partial outcome between.

    Raises:
        DataError: there are none, or one is not from 0 to 1.
    """
    return sum(_checked(outcomes)) / len(outcomes)


def label_steps(
    group: Sequence[Sample], outcomes: Sequence[float], *, continuations: int, soft: bool = True
) -> list[dict[int, StepLabel]]:
    """Returns the labels of the turns of each sample, from the siblings that went on from the same state.

    The state after a turn is what was written and observed up to it. Siblings whose first turns are the same are
    continuations from it: rollouts of one prompt that branch (`agentic.branching`), or that happen to
    begin alike. A sample is a continuation of its own.

    Args:
        group: rollouts of one prompt.
        outcomes: of the samples, each from 0 to 1.
        continuations: K: a state that fewer samples went on from has no label.
        soft: `state_value`, else `hard_label`.

    Raises:
        DataError: an outcome is not from 0 to 1.
    """
    ends: dict[tuple[str, ...], list[float]] = defaultdict(list)
    states = [list(accumulate(((turn.text, *turn.observations) for turn in sample.turns), add)) for sample in group]
    for known, outcome in zip(states, outcomes, strict=True):
        for state in known:
            ends[state].append(outcome)
    label = state_value if soft else hard_label
    return [
        {
            turn.index: StepLabel(value=label(ends[state]), continuations=len(ends[state]))
            for turn, state in zip(sample.turns, known, strict=True)
            if len(ends[state]) >= continuations
        }
        for sample, known in zip(group, states, strict=True)
    ]


def _checked(outcomes: Sequence[float]) -> Sequence[float]:
    if not outcomes or not all(0 <= outcome <= 1 for outcome in outcomes):
        raise DataError(f"a step needs outcomes of at least one completion, each from 0 to 1, got {list(outcomes)}")
    return outcomes
