"""Patches verl: `PolicyLossConfig` gets the keys `actor.policy_loss.options` and `per_session`."""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.config import actor

from verl_agentic.credit.policy_loss import is_policy_loss, load_policy_loss
from verl_agentic.verl.patching import replace


@dataclasses.dataclass
class PolicyLossConfig(actor.PolicyLossConfig):
    """Keys that are added to verl's section of the policy loss."""

    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the loss `loss_mode`, if it is one of `verl-agentic`."""
    per_session: bool = False
    """Give every session the same weight: the mean over the sampled tokens of all of its rows, averaged over the
    sessions of the mini-batch. It replaces `actor.loss_agg_mode`."""

    def __post_init__(self) -> None:
        if is_policy_loss(self.loss_mode):
            load_policy_loss(self.loss_mode).check_options(self.options)


replace(actor, "PolicyLossConfig", PolicyLossConfig)
