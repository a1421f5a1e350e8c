"""Costs with limits: reward is maximised while the mean of each cost stays below its limit (a Lagrangian)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.base.settings import Settings, setting
from verl_agentic.credit.credit.batch import CreditBatch

METRICS = (
    Metric(name="cost/*/mean", unit="cost", per="session", rows="valid sessions with the cost"),
    Metric(name="cost/*/limit", unit="cost", per="run", rows="", join="last"),
    Metric(name="cost/*/multiplier", unit="reward per scaled cost", per="update", rows="", join="last"),
)


class CostLimitSettings(Settings):
    """Costs with limits: the section `agentic.cost_limits`. The defaults are ours."""

    max_mean: Mapping[str, float] = setting(min=0)
    """Number of an episode, as in the metric `episode/NAME` -> maximum of its mean over a batch."""
    scales: Mapping[str, float] = setting(factory=dict, above=0)
    """Number of an episode -> amount of the cost that counts as 1. Default: 1."""
    initial: float = setting(1.0, min=0)
    """Multiplier of each cost in the first step."""
    lr: float = setting(0.1, above=0)
    """Change of a multiplier in a step whose scaled cost is 1 above the limit."""
    max_multiplier: float = setting(100.0, above=0)
    """Maximum of a multiplier."""

    def check_together(self) -> None:
        if not self.max_mean:
            raise ConfigError("max_mean must name a number of an episode, got none; write `NAME: maximum of its mean`")
        if unknown := sorted(set(self.scales) - set(self.max_mean)):
            raise ConfigError(f"scales must be of costs in max_mean, got {unknown}; add a maximum")
        if self.initial > self.max_multiplier:
            raise ConfigError(
                f"initial must be at most max_multiplier, got {self.initial} and {self.max_multiplier}; lower it"
            )

    def scale(self, name: str) -> float:
        """Returns the amount of a cost that counts as 1."""
        return self.scales.get(name, 1.0)


def next_multiplier(multiplier: float, *, name: str, mean_cost: float, settings: CostLimitSettings) -> float:
    """Returns the multiplier of a cost for the next step: `max(0, lambda + lr (mean - limit) / scale)`.

    This is gradient ascent on the Lagrangian `J_R - lambda (J_C - limit)` over lambda >= 0.

    Args:
        multiplier: lambda of this step.
        name: of the cost.
        mean_cost: J_C, the mean of the unscaled cost over valid sessions.
        settings: limit, scale and rate.

    Paper: https://arxiv.org/abs/2310.12773 (Safe RLHF, the min-max problem of the Lagrangian, and eq. 31)
    Deviations: the ascent is on lambda and stops at 0. Eq. 31 ascends on ln lambda, which can hardly leave 0 again.
        Costs are numbers of an episode or components of a rubric, not a learned cost model. The critic of `gae` learns
        the combined reward, not one value for each of the two.
    """
    excess = (mean_cost - settings.max_mean[name]) / settings.scale(name)
    return min(max(0.0, multiplier + settings.lr * excess), settings.max_multiplier)


@dataclass(frozen=True, kw_only=True)
class CostCharges:
    """The costs of a batch, weighed by their multipliers."""

    charges_BT: Tensor
    """`[B, T]` float32: sum of `lambda cost / scale` at the last sampled token of a session, 0 elsewhere."""
    total_multiplier: float
    """Sum of the multipliers."""

    def added_to(self, rewards_BT: Tensor) -> Tensor:
        """Returns `[B, T]`: `(reward - sum lambda cost) / (1 + sum lambda)`, so that its scale does not grow."""
        return (rewards_BT - self.charges_BT.to(rewards_BT)) / (1.0 + self.total_multiplier)

    def metrics(self, batch: CreditBatch) -> dict[str, float]:
        """Returns nothing: the trainer logs costs and multipliers."""
        return {}
