"""Tasks proposed during training: they join the data after a check, and are removed when they give no signal.

Absolute Zero, R-Zero and SSP propose their own tasks. An environment implements the proposer;
`graders.groups.self_play` rewards it. This module holds the set of proposed tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import DataError
from verl_agentic.base.places.error_places import describe_cause
from verl_agentic.sampling.prompts.pass_rates import Floats, PassRates

Check = Callable[[Mapping[str, Any]], bool]
"""Returns whether a task is valid; exceptions count as invalid."""


@dataclass(frozen=True, kw_only=True)
class ProposalResult:
    """The result of a proposal."""

    place: int | None
    """Its number in the set; None if it was rejected."""
    reason: str = ""
    """Reason of a rejection."""

    @property
    def penalty(self) -> float:
        """Reward of the proposer: -0.5 for a rejected task, as in Absolute Zero, else 0."""
        return 0.0 if self.place is not None else -0.5


def is_worth_posing(values: Floats, *, low: float = 0.05, high: float = 0.75) -> NDArray[np.bool_]:
    """Returns which generated tasks WebRL keeps: those whose first state has a value in `[low, high]`.

    Args:
        values: [N] the critic's value of the first state.
        low: below, a task counts as impossible.
        high: above, it counts as solved. Both bounds are inclusive, by our reading of its code.

    Paper: https://arxiv.org/abs/2411.02337
    """
    return (values >= low) & (values <= high)


class TaskSet:
    """Proposed tasks, numbered from 0 in order of entry. A removed task keeps its number."""

    def __init__(self, *, patience: int = 4, value_bounds: Sequence[float] | None = None) -> None:
        """Makes an empty set; for the arguments see `TaskSetSettings`."""
        self.patience = patience
        self.value_bounds = value_bounds
        self.rows: list[dict[str, Any]] = []
        self._alive: list[bool] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_alive_N(self) -> NDArray[np.bool_]:
        """Tasks that are not removed."""
        return np.array(self._alive, dtype=bool)

    def propose(self, row: Mapping[str, Any], *, check: Check) -> ProposalResult:
        """Checks a task and adds it, unless it was proposed before.

        Args:
            row: the task, with the columns of the data.
            check: for example, whether the task runs, is deterministic and has an answer.
        """
        task = dict(row)
        if task in self.rows:
            return ProposalResult(place=None, reason="proposed before")
        try:
            is_valid = check(task)
        except Exception as cause:
            return ProposalResult(place=None, reason=f"the check failed, got {describe_cause(cause)}")
        if not is_valid:
            return ProposalResult(place=None, reason="the check refused it")
        self.rows.append(task)
        self._alive.append(True)
        return ProposalResult(place=len(self.rows) - 1)

    def retire(self, rates: PassRates) -> list[int]:
        """Removes tasks without a signal, by the last rates of the table; returns their numbers."""
        own_places = slice(len(rates) - len(self), len(rates))
        leaves_N = np.abs(rates.streak_N[own_places]) >= self.patience
        if self.value_bounds is not None:
            low, high = self.value_bounds
            leaves_N |= rates.is_seen_N[own_places] & ~is_worth_posing(rates.mean_N[own_places], low=low, high=high)
        leaving = [i for i in np.flatnonzero(leaves_N).tolist() if self._alive[i]]
        for place in leaving:
            self._alive[place] = False
        return leaving

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [dict(row) for row in self.rows], "alive": list(self._alive)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the set. Raises DataError if the state is not of a task set."""
        if len(state["rows"]) != len(state["alive"]):
            raise DataError(f"a task set has {len(state['rows'])} rows, got {len(state['alive'])} marks; use another "
                            "checkpoint")  # fmt: skip
        self.rows, self._alive = [dict(row) for row in state["rows"]], [bool(mark) for mark in state["alive"]]
