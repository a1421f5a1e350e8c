"""Which prompts are worth training on, from attempts that were made before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.prompts.pass_rates import Floats

_FULL = 1.0 - 1e-9  # an outcome from here on is a success, as in evaluation


def is_learnable(rates_N: Floats, *, low: float = 0.0, high: float = 1.0) -> NDArray[np.bool_]:
    """Tells which prompts to keep: those with a pass rate between `low` and `high`, both excluded.

    With the defaults, those that some attempts solved and some did not (DeepCoder). A rate holds for the model and the
    settings it was measured with: prompts that a weak model never solves may be the best ones later. Prompts without a
    rate (NaN) are kept.

    Args:
        rates_N: [N] share of attempts that succeeded.
        low: at and below, prompts are too hard.
        high: at and above, they are too easy.

    Raises:
        ConfigError: not 0 <= low < high <= 1.
    """
    if not 0 <= low < high <= 1:
        raise ConfigError(f"the bounds of pass rates need 0 <= low < high <= 1, got {low} and {high}")
    return np.isnan(rates_N) | ((rates_N > low) & (rates_N < high))


def pass_rates_of(records: Iterable[Mapping[str, Any]], tasks: Sequence[str], *, min_attempts: int = 2) -> Floats:
    """Returns the pass rate of every task, [N] in the order of `tasks`; NaN where too few attempts count.

    Args:
        records: of `verl-agentic evaluate`: their `task`, `outcome` and `void`. Void attempts do not count.
        tasks: what to look up.
        min_attempts: attempts that must count. After one, every rate would be 0 or 1.

    Raises:
        ConfigError: no task has so many.
    """
    outcomes: dict[str, list[bool]] = {}
    for record in records:
        if not record["void"]:
            outcomes.setdefault(str(record["task"]), []).append(float(record["outcome"]) >= _FULL)
    tries = [outcomes.get(task, []) for task in tasks]
    rates = np.array([np.mean(own) if len(own) >= min_attempts else np.nan for own in tries])
    if np.isnan(rates).all():
        raise ConfigError(
            f"none of the {len(tasks)} tasks has {min_attempts} attempts that count, got at most "
            f"{max(map(len, tries), default=0)}; evaluate them with more samples"
        )
    return rates
