"""Labels of steps for process reward models, estimated from continuations.

Paper: https://arxiv.org/abs/2312.08935 (Math-Shepherd, eq. 3 and 4)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from verl_agentic.base.errors import DataError
from verl_agentic.rewards.sample import Sample


@dataclass(frozen=True)
class StepLabel:
    """The label of the state after a turn."""

    value: float
    """From 0 to 1."""
    continuations: int
    """Number of rollouts for the estimate."""


def hard_label(outcomes: Sequence[float]) -> float:
    """Returns 1 when any completion from a step is right, else 0.

    Args:
        outcomes: [N] outcomes of the completions from the step, each 0 or 1.

    Raises:
        DataError: `outcomes` is empty, or has a value outside 0 to 1.
    """
    return float(any(outcome == 1 for outcome in _check_outcomes(outcomes)))


def state_value(outcomes: Sequence[float]) -> float:
    """Returns the value of the state after a step: the share of successful continuations (soft label).

    Its standard error is sqrt(v (1 - v) / K): with K = 4, a quarter at v = 0.5.

    Args:
        outcomes: [K] outcomes of the continuations, from 0 to 1.

    Raises:
        DataError: `outcomes` is empty, or has a value outside 0 to 1.
    """
    return sum(_check_outcomes(outcomes)) / len(outcomes)


def label_steps(
    group: Sequence[Sample], outcomes: Sequence[float], *, continuations: int, soft: bool = True
) -> list[dict[int, StepLabel]]:
    """Returns the labels of the turns of each sample, from siblings that continue from the same state.

    The state after a turn is all text up to it. Siblings with equal first turns are continuations: rollouts that branch
    (`agentic.branching`), or start alike by chance. A sample counts as its own continuation.

    Args:
        group: rollouts of one prompt.
        outcomes: outcomes of the samples, each from 0 to 1.
        continuations: K, minimum number of continuations for a label.
        soft: `state_value`, else `hard_label`.

    Raises:
        DataError: an outcome is not from 0 to 1.
    """
    ends: dict[tuple[str, ...], list[float]] = defaultdict(list)
    states = [list(accumulate(((turn.text, *turn.observations) for turn in sample.turns), add)) for sample in group]
    for turn_states, outcome in zip(states, outcomes, strict=True):
        for state in turn_states:
            ends[state].append(outcome)
    label = state_value if soft else hard_label
    return [
        {
            turn.index: StepLabel(value=label(ends[state]), continuations=len(ends[state]))
            for turn, state in zip(sample.turns, turn_states, strict=True)
            if len(ends[state]) >= continuations
        }
        for sample, turn_states in zip(group, states, strict=True)
    ]


def _check_outcomes(outcomes: Sequence[float]) -> Sequence[float]:
    if not outcomes or not all(0 <= outcome <= 1 for outcome in outcomes):
        raise DataError(f"a step needs outcomes of at least one completion, each from 0 to 1, got {list(outcomes)}")
    return outcomes
