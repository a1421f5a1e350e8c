"""Selects prompts by pass rates measured before training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.prompts.pass_rates import Floats

_FULL = 1.0 - 1e-9  # an outcome from here on is a success, as in evaluation


def is_learnable(rates_N: Floats, *, low: float = 0.0, high: float = 1.0) -> NDArray[np.bool_]:
    """Returns which prompts to keep: those with a pass rate strictly between `low` and `high`.

    The defaults keep prompts that some attempts solved and some did not (DeepCoder). A rate is valid for the model and
    settings of its measurement. Prompts without a rate (NaN) are kept.

    Args:
        rates_N: [N] share of successful attempts.

    Raises:
        ConfigError: not 0 <= low < high <= 1.
    """
    if not 0 <= low < high <= 1:
        raise ConfigError(f"the bounds of pass rates need 0 <= low < high <= 1, got {low} and {high}")
    return np.isnan(rates_N) | ((rates_N > low) & (rates_N < high))


def pass_rates_of(records: Iterable[Mapping[str, Any]], tasks: Sequence[str], *, min_attempts: int = 2) -> Floats:
    """Returns the pass rate of every task, [N] in the order of `tasks`; NaN if too few attempts count.

    Args:
        records: last rows of the log of an evaluation: `task_id`, `acc`, `is_void`. Void attempts do not count.
        min_attempts: minimum number of attempts. With one attempt, every rate would be 0 or 1.

    Raises:
        ConfigError: no task has enough attempts.
    """
    outcomes: dict[str, list[bool]] = {}
    for record in records:
        if not record["is_void"]:
            outcomes.setdefault(record["task_id"], []).append(record["acc"] >= _FULL)
    tries = [outcomes.get(task, []) for task in tasks]
    rates = np.array([np.mean(attempts) if len(attempts) >= min_attempts else np.nan for attempts in tries])
    if np.isnan(rates).all():
        raise ConfigError(
            f"none of the {len(tasks)} tasks has {min_attempts} attempts that count, got at most "
            f"{max(map(len, tries), default=0)}; evaluate them with more samples"
        )
    return rates
