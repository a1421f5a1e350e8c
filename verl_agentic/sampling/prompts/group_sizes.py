"""Distributes a fixed budget of attempts over prompts by score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.prompts.pass_rates import Floats


def group_sizes(scores_P: Floats, *, budget: int, least: int, most: int) -> NDArray[np.int64]:
    """Returns the attempts of each of P prompts: between `least` and `most`, with sum `budget`.

    Every prompt gets `least`; the rest is distributed in proportion to the scores. The surplus of a full prompt goes to
    the others in the same proportion; prompts with score 0 come last, equally. Fractions go to the largest remainders.
    With the score sqrt(p (1 - p)) and no bounds, this is Neyman's allocation, which minimises the variance of the mean
    over prompts. Its use for groups is our design.

    Args:
        scores_P: [P] finite, >= 0.
        budget: all attempts of the batch; `rollout.n * P` keeps the cost of a step.

    Raises:
        ConfigError: the budget is not between `P * least` and `P * most`.
    """
    count = len(scores_P)
    if not 0 <= count * least <= budget <= count * most:
        raise ConfigError(f"{budget} attempts do not fit {count} prompts with {least} to {most} each; widen the bounds")
    assert np.isfinite(scores_P).all() and (scores_P >= 0).all()
    wished = least + _split_total(
        np.asarray(scores_P, dtype=np.float64), float(budget - count * least), float(most - least)
    )
    sizes = np.floor(wished + 1e-9).astype(np.int64)
    remainders = wished - sizes
    open_P = np.argsort(np.where(sizes < most, -remainders, np.inf), kind="stable")
    sizes[open_P[: budget - sizes.sum()]] += 1
    return sizes


def _split_total(scores_P: Floats, total: float, max_share: float) -> Floats:
    """Returns shares of `total` in proportion to the scores, at most `max_share` each; scores of 0 come last."""
    shares = np.zeros(len(scores_P))
    for weights in (scores_P, np.ones(len(scores_P))):
        is_open = (weights > 0) & (shares < max_share)
        while total > 1e-9 and is_open.any():
            open_weights = np.where(is_open, weights, 0.0)
            added = total * open_weights / open_weights.sum()
            is_full = is_open & (shares + added > max_share)
            if not is_full.any():
                return shares + added
            total -= float((max_share - shares[is_full]).sum())
            shares[is_full] = max_share
            is_open &= ~is_full
    return shares
