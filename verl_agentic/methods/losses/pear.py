"""Weights of an SFT loss that prepare a model for RL (PEAR)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting


class PearSettings(Settings):
    """The section `pear`. The defaults are ours."""

    section: ClassVar[str] = "pear"

    level: Literal["token", "block", "sequence"] = "token"
    """Unit whose probability ratio is clipped: a token, a turn, or the row."""
    gamma: float = setting(0.99, above=0, max=1)
    """Discount of a later unit. Ratios of many units would explode without it."""
    min_ratio: float = setting(0.5, above=0)
    """Minimum ratio of a unit."""
    max_ratio: float = setting(2.0, above=0)
    """Maximum ratio of a unit."""
    max_weight: float = setting(10.0, above=0)
    """Maximum weight of a token."""

    def check_together(self) -> None:
        if self.min_ratio > self.max_ratio:
            raise ConfigError(f"pear.min_ratio must be at most max_ratio, got {self.min_ratio} and {self.max_ratio}")


def pear_weights(log_ratio_N: Tensor, turns_N: Tensor, settings: PearSettings) -> Tensor:
    """Returns `[N]` float32: the weights of a row's sampled tokens, without gradient.

    A token's weight is the product of `gamma * clip(pi / beta)` over all later units: how much more likely the policy
    is than the author of the data to go on like this. With `level=sequence`, every token has the clipped ratio of the
    row.

    Args:
        log_ratio_N: `[N]` float: log pi - log beta of the sampled tokens, in order. pi is the policy that is trained.
        turns_N: `[N]` int64: turns of these tokens, not decreasing.
        settings: level and limits.

    Paper: https://arxiv.org/abs/2602.01058
    Deviations: blocks are turns, and `max_weight` bounds the product.
    """
    log_ratio_N = log_ratio_N.detach().double()
    units_N = {
        "token": torch.arange(len(turns_N), device=turns_N.device),
        "block": turns_N,
        "sequence": torch.zeros_like(turns_N),
    }[settings.level]
    _, unit_N, _ = torch.unique_consecutive(units_N, return_inverse=True, return_counts=True)
    num_units = int(unit_N[-1]) + 1 if len(unit_N) else 0
    log_ratio_U = torch.zeros(num_units, dtype=torch.float64, device=unit_N.device).index_add(0, unit_N, log_ratio_N)
    log_ratio_U = log_ratio_U.clamp(math.log(settings.min_ratio), math.log(settings.max_ratio))
    if settings.level != "sequence":
        log_ratio_U = log_ratio_U + math.log(settings.gamma)
        log_ratio_U = log_ratio_U.flip(0).cumsum(0).flip(0) - log_ratio_U
    return log_ratio_U[unit_N].clamp(max=math.log(settings.max_weight)).exp().float()
