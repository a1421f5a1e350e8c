"""A policy gradient on suggestions that users accepted or rejected, safe for suggestions of older models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from verl_agentic.base.settings import Settings, setting
from verl_agentic.credit.losses.ppo import MAX_LOG_RATIO, clip_objective


class SuggestionSettings(Settings):
    """The section `suggestions`. The defaults are ours, but for `threshold`."""

    section: ClassVar[str] = "suggestions"

    threshold: float = setting(0.25, above=0, below=1)
    """Probability of acceptance at which a suggestion is worth 0. An accepted one earns 1 - threshold, a rejected one
    -threshold, and one that was not shown 0."""
    clip: float = setting(0.2, above=0, below=1)
    """Distance of a token's ratio from 1, from which a suggestion no longer moves it away."""
    max_drift: float = setting(0.5, above=0)
    """Mean absolute log-ratio of a suggestion's tokens, above which it is left out: another policy wrote it."""


@dataclass(frozen=True, kw_only=True)
class SuggestionLoss:
    """The loss of one suggestion."""

    loss_N: Tensor
    """`[N]` float32: of its tokens."""
    is_used: bool
    """Whether the policy is near enough to the one that wrote it."""


def suggestion_reward(verdict: str, *, threshold: float = 0.25) -> float:
    """Returns the reward of a verdict: `accepted`, `rejected`, or `hidden` for what was not shown."""
    return {"accepted": 1 - threshold, "rejected": -threshold, "hidden": 0.0}[verdict]


def suggestion_loss(
    log_prob_N: Tensor, author_log_prob_N: Tensor, *, reward: float, settings: SuggestionSettings
) -> SuggestionLoss:
    """Returns PPO's loss of the tokens of a suggestion, with the policy that wrote it as the old one.

    The reward is the advantage: `threshold` is its baseline. A suggestion whose author has drifted away has loss 0, so
    an old log cannot pull the policy along ratios that say little.

    Args:
        log_prob_N: `[N]` float: under the policy that is trained.
        author_log_prob_N: `[N]` float: from the log, under the policy that wrote it.
        reward: of `suggestion_reward`.
        settings: `clip` and `max_drift`.

    The rewards are those of Cursor's article on its Tab model; there is no paper. Deviations: the article has on-policy
    data of a model that is replaced within hours, and says nothing of clipping.
    """
    log_ratio_N = (log_prob_N.float() - author_log_prob_N.float()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    is_used = bool(log_ratio_N.detach().abs().mean() <= settings.max_drift)
    advantages_N = torch.full_like(log_ratio_N, reward if is_used else 0.0)
    clipped = clip_objective(log_ratio_N.exp(), advantages_N, low=settings.clip, high=settings.clip, dual=3.0)
    return SuggestionLoss(loss_N=clipped.loss, is_used=is_used)
