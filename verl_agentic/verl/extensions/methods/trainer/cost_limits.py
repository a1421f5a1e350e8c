"""Costs with limits: `algorithm.cost_limits`, for trainers `agentic_*`.

A cost is a number that the agent loop stored with the rows. It is subtracted once per session, from the reward that
the estimator gets. The multipliers are saved with the checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.methods.cost_limits import CostCharges, next_multiplier
from verl_agentic.verl.batches.row_store import is_padding, split_key
from verl_agentic.verl.extensions.methods.method_sections import cost_limits
from verl_agentic.verl.extensions.methods.trainer.added_rewards import check_readers
from verl_agentic.verl.trainer.trainer_part import TrainerPart, read_columns

SECTION = "algorithm.cost_limits"


class CostLimits(TrainerPart):
    """Subtracts costs from the reward, and adapts their multipliers."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._settings = settings = cost_limits(config)
        self._multipliers = {} if settings is None else dict.fromkeys(settings.max_mean, settings.initial)
        self._charges: CostCharges | None = None

    def prepare(self) -> None:
        """See `check_readers`."""
        if self._settings is not None:
            check_readers(self.config, section=SECTION)

    def before_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> dict[str, float]:
        """Computes the charges of this step, and the multipliers of the next one."""
        settings = self._settings
        if settings is None:
            return {}
        masks = read_columns(batch, "response_mask")["response_mask"].unbind()
        last_tokens = _find_last_tokens(batch.keys, masks)
        charges_BT = torch.zeros(len(masks), max(len(mask) for mask in masks))
        metrics, total = {}, sum(self._multipliers.values())
        for name, multiplier in self._multipliers.items():
            cost_B = _read_cost(columns, name)
            costs = {place: float(cost_B[place]) for place in last_tokens if not math.isnan(cost_B[place])}
            for place, cost in costs.items():
                charges_BT[place, last_tokens[place]] += multiplier * cost / settings.scale(name)
            mean = sum(costs.values()) / len(costs) if costs else settings.max_mean[name]  # no change without a cost
            metrics |= {
                f"cost/{name}/mean": mean,
                f"cost/{name}/limit": settings.max_mean[name],
                f"cost/{name}/multiplier": multiplier,
            }
            self._multipliers[name] = next_multiplier(multiplier, name=name, mean_cost=mean, settings=settings)
        self._charges = CostCharges(charges_BT=charges_BT, total_multiplier=total)
        return metrics

    def token_rewards(self, data: Any) -> CostCharges | None:
        """Returns the charges of the batch of `before_advantages`."""
        return self._charges

    def state(self) -> dict[str, Any]:
        """Returns the multipliers."""
        return dict(self._multipliers)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes the multipliers of costs that still have a limit."""
        self._multipliers |= {name: float(state[name]) for name in self._multipliers if name in state}


def _read_cost(columns: Mapping[str, Any], name: str) -> torch.Tensor:
    """Returns `[B]` the cost of the row's session, NaN where it is unknown. Raises ConfigError if no row has it."""
    parts = columns.get("parts", {})
    if name not in parts:
        raise ConfigError(
            f"agentic.cost_limits.max_mean needs a number that episodes have, got {name!r}; they have {sorted(parts)}"
        )
    cost_B = parts[name].float()
    if bool((cost_B < 0).any()):
        raise DataError(
            f"a cost must be at least 0, got {name} = {float(cost_B.nan_to_num().min()):g}; change its sign"
        )
    return cost_B


def _find_last_tokens(keys: Sequence[str], masks: Sequence[torch.Tensor]) -> dict[int, int]:
    """Returns the last row of each valid session -> the place of its last sampled token."""
    last_rows: dict[tuple[str, str], tuple[int, int]] = {}
    for place, (key, mask) in enumerate(zip(keys, masks, strict=True)):
        if not is_padding(key) and bool(mask.any()):
            uid, session, index = split_key(key)
            last_rows[uid, session] = max(last_rows.get((uid, session), (index, place)), (index, place))
    return {place: int(masks[place].nonzero()[-1]) for _, place in last_rows.values()}
