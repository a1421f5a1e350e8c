"""More attempts for prompts where they tell more, out of a fixed budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.prompts.pass_rates import Floats


def group_sizes(scores_P: Floats, *, budget: int, least: int, most: int) -> NDArray[np.int64]:
    """Returns how many attempts each of P prompts gets: from least to most each, and together exactly `budget`.

    Every prompt gets `least`; the rest goes out in proportion to the scores. What a full prompt cannot take goes to the
    others in the same proportion, and prompts with a score of 0 are served last, alike. Fractions go to the greatest
    remainders. With the standard deviation of an attempt, sqrt(p (1 - p)), as the score and no bounds, this is Neyman's
    allocation: the sizes that make the variance of the mean over prompts least. That it is used for groups is our
    design.

    Args:
        scores_P: [P] finite, >= 0.
        budget: all attempts of the batch, `rollout.n * P` to keep what a step costs.
        least: attempts that every prompt gets.
        most: attempts that no prompt gets more of.

    Raises:
        ConfigError: the budget is not between `P * least` and `P * most`.
    """
    count = len(scores_P)
    if not 0 <= count * least <= budget <= count * most:
        raise ConfigError(
            f"{budget} attempts cannot be shared by {count} prompts with {least} to {most} each; widen the bounds"
        )
    assert np.isfinite(scores_P).all() and (scores_P >= 0).all()
    wished = least + _shares(np.asarray(scores_P, dtype=np.float64), float(budget - count * least), float(most - least))
    sizes = np.floor(wished + 1e-9).astype(np.int64)
    remainders = wished - sizes
    open_P = np.argsort(np.where(sizes < most, -remainders, np.inf), kind="stable")
    sizes[open_P[: budget - sizes.sum()]] += 1
    return sizes


def _shares(scores_P: Floats, total: float, most: float) -> Floats:
    """Returns shares of `total` in proportion to the scores, none above `most`; what nobody scored for goes last."""
    shares = np.zeros(len(scores_P))
    for weights in (scores_P, np.ones(len(scores_P))):
        is_open = (weights > 0) & (shares < most)
        while total > 1e-9 and is_open.any():
            wanted = np.where(is_open, weights, 0.0)
            added = total * wanted / wanted.sum()
            is_full = is_open & (shares + added > most)
            if not is_full.any():
                return shares + added
            total -= float((most - shares[is_full]).sum())
            shares[is_full] = most
            is_open &= ~is_full
    return shares
