"""A table of the policy's pass rate per prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import ConfigError, DataError

Floats = NDArray[np.float64]
_FULL = 1.0 - 1e-9  # an outcome from here on is a success, as in evaluation
_COLUMNS = ("trials", "passes", "squares", "streak", "groups")


class PassRates:
    """The mean outcomes of N prompts, with decay.

    A group multiplies the sums of its prompt by `memory`, then adds its outcomes. With groups of one size and no prior,
    the rate is the bias-corrected exponential moving average of the groups' means with step `1 - memory`. Rates lag
    behind the policy by the time between two visits of a prompt.
    """

    def __init__(self, count: int, *, memory: float = 0.7, prior_rate: float = 0.5, prior_trials: float = 1.0) -> None:
        """Makes an empty table.

        Args:
            count: N, number of prompts.
            memory: factor of the earlier evidence when a new group is recorded, 0 (only the last group) to 1 (all).
            prior_rate: the rate of a new prompt.
            prior_trials: weight of the prior in attempts; with 0, one failed group makes the rate exactly 0.

        Raises:
            ConfigError: a value is out of range.
        """
        if count < 1 or not 0 <= memory <= 1 or not 0 <= prior_rate <= 1 or not 0 <= prior_trials < np.inf:
            raise ConfigError(
                "pass rates need prompts, memory and prior_rate in [0, 1] and prior_trials >= 0, got "
                f"{count}, {memory}, {prior_rate}, {prior_trials}"
            )
        self.memory, self.prior_rate, self.prior_trials = memory, prior_rate, prior_trials
        self._table: dict[str, NDArray[Any]] = {name: np.zeros(count) for name in _COLUMNS}
        self.version = 0
        """Changes whenever a rate does."""

    def __len__(self) -> int:
        return len(self._table["trials"])

    @property
    def is_seen_N(self) -> NDArray[np.bool_]:
        """Prompts with evidence."""
        return self._table["trials"] > 0

    @property
    def groups_N(self) -> Floats:
        """Finished groups of each prompt."""
        return self._table["groups"]

    @property
    def streak_N(self) -> Floats:
        """Successive groups that were all solved (positive) or all failed (negative); 0 after a mixed one."""
        return self._table["streak"]

    @property
    def failures_N(self) -> Floats:
        """Successive groups without a success."""
        return np.maximum(0.0, -self.streak_N)

    @property
    def mean_N(self) -> Floats:
        """Mean outcome of every prompt, `(passes + prior_trials * prior_rate) / (trials + prior_trials)`."""
        return self._compute_mean("passes")

    @property
    def std_N(self) -> Floats:
        """Standard deviation of the outcomes of one prompt (population); for outcomes 0 and 1, sqrt(p(1-p))."""
        return np.sqrt(np.maximum(0.0, self._compute_mean("squares") - self.mean_N**2))

    def record(self, prompt: int, outcomes: Sequence[float]) -> None:
        """Adds the outcomes of the valid attempts of a finished group. Raises DataError if an outcome is not finite."""
        if not len(outcomes):
            return
        values = np.asarray(outcomes, dtype=np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"outcomes of prompt {prompt} must be finite, got {list(outcomes)}; leave void ones out")
        table = self._table
        for name, added in (("trials", len(values)), ("passes", values.sum()), ("squares", (values**2).sum())):
            table[name][prompt] = self.memory * table[name][prompt] + added
        way = 1 if values.min() >= _FULL else -1 if values.max() < _FULL else 0
        goes_on = way * table["streak"][prompt] > 0
        table["streak"][prompt] = way + (table["streak"][prompt] if goes_on else 0)
        table["groups"][prompt] += 1
        self.version += 1

    def start_from(self, rates_N: Floats, *, trials: float) -> None:
        """Adds rates as evidence of `trials` attempts; NaN: unknown. Raises DataError unless they are in [0, 1]."""
        rates = np.asarray(rates_N, dtype=np.float64)
        is_known = ~np.isnan(rates)
        if rates.shape != (len(self),) or not ((rates[is_known] >= 0) & (rates[is_known] <= 1)).all():
            raise DataError(f"pass rates must be {len(self)} numbers in [0, 1], got {rates.shape}: {rates[:8]}")
        self._table["trials"][is_known] += trials
        for name in ("passes", "squares"):
            self._table[name][is_known] += trials * rates[is_known]
        self.version += 1

    def grow(self, count: int) -> None:
        """Adds new prompts."""
        for name, column in self._table.items():
            self._table[name] = np.concatenate([column, np.zeros(count)])
        self.version += 1

    def rows(self) -> list[dict[str, float]]:
        """Returns the table of the seen prompts, the hardest first."""
        seen_places = np.flatnonzero(self.is_seen_N)
        mean = self.mean_N
        order = seen_places[np.argsort(mean[seen_places], kind="stable")]
        return [
            {"prompt": int(i), "rate": float(mean[i]), "groups": int(self.groups_N[i]), "streak": int(self.streak_N[i])}
            for i in order
        ]

    def metrics(self) -> dict[str, float]:
        """Returns means over the seen prompts; without any, only their share."""
        is_seen = self.is_seen_N
        numbers = {"seen_share": float(is_seen.mean())}
        if is_seen.any():
            passes = self._table["passes"][is_seen] / self._table["trials"][is_seen]
            numbers |= {
                "pass_rate": float(passes.mean()),
                "never_solved_share": float((passes <= 0).mean()),
                "always_solved_share": float((passes >= _FULL).mean()),
            }
        return numbers

    def complaint(self, *, min_prompts: int = 32) -> str | None:
        """Returns a message if no attempt succeeded; None while fewer than `min_prompts` prompts are seen."""
        is_seen = self.is_seen_N
        count = int(is_seen.sum())
        if count < min(min_prompts, len(self)) or self._table["passes"][is_seen].any():
            return None
        return (
            f"base too weak: no attempt at any of the {count} prompts seen has succeeded, so groups carry no signal; "
            "start from a model that solves some (SFT), bring easier prompts, or reward partial success"
        )

    def state_dict(self) -> dict[str, Any]:
        return {name: column.copy() for name, column in self._table.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a table of the same prompts. Raises DataError if the state is of other prompts."""
        columns = {name: np.asarray(state[name], dtype=np.float64).copy() for name in _COLUMNS}
        if {len(column) for column in columns.values()} != {len(self)}:
            raise DataError(
                f"the checkpoint has pass rates of {len(columns['trials'])} prompts, got a data set of {len(self)}; "
                "resume with the same files and filters"
            )
        self._table = columns
        self.version += 1

    def _compute_mean(self, name: str) -> Floats:
        trials = self._table["trials"] + self.prior_trials
        total = self._table[name] + self.prior_trials * self.prior_rate
        return np.divide(total, trials, out=np.full(len(self), self.prior_rate), where=trials > 0)


def task_values(mean_N: Floats, std_N: Floats, *, max_reward: float = 1.0) -> Floats:
    """Returns `(max_reward - mean) * std`, std of the population; 0 if all attempts got the same reward.

    For outcomes 0 and 1 its maximum is at a pass rate of 1/4.
    """
    return np.maximum(0.0, max_reward - mean_N) * std_N
