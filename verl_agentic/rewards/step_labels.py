"""How good is a step? Estimated by playing on from it: labels for process reward models, and values of states.

Paper: https://arxiv.org/abs/2312.08935 (Math-Shepherd, eq. 3 and 4)
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.errors import DataError


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


def step_labels(outcomes: Sequence[Sequence[float]], *, soft: bool = True) -> list[float]:
    """Returns the label of each step.

    Args:
        outcomes: [steps, N]; steps may have different numbers of completions.
        soft: `state_value`, else `hard_label`.

    Raises:
        DataError: a step without completions, or an outcome that is not from 0 to 1.
    """
    return [state_value(one) if soft else hard_label(one) for one in outcomes]


def _checked(outcomes: Sequence[float]) -> Sequence[float]:
    if not outcomes or not all(0 <= outcome <= 1 for outcome in outcomes):
        raise DataError(f"a step needs outcomes of at least one completion, each from 0 to 1, got {list(outcomes)}")
    return outcomes
