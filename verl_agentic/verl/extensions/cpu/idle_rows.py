"""Rows of an update that give no gradient: those of groups whose rewards are equal."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from verl.workers.utils import losses


def idle_rows(micro_batch: Any, loss_function: Any) -> set[int]:
    """Returns the numbers of rows whose log-probs need no gradient, because every advantage is 0.

    Only verl's own policy loss, without KL and entropy terms, is a sum of products with advantages. The shortest row is
    never idle if all others are. So every parameter has a gradient, and the optimiser goes on as with all rows.
    """
    config: Any = getattr(loss_function, "keywords", {}).get("config")
    is_product = (
        getattr(loss_function, "func", None) is losses.ppo_loss
        and not config.use_kl_loss
        and not config.entropy_coeff
        and config.policy_loss.get("loss_mode", "vanilla") == "vanilla"
    )
    if not is_product:
        return set()
    advantages: Tensor = micro_batch["advantages"]
    idle = {number for number, row in enumerate(advantages.unbind()) if not row.any()}
    if len(idle) == len(micro_batch):
        idle.remove(int(micro_batch["input_ids"].offsets().diff().argmin()))
    return idle
