"""VSPO: groups that are used again and again do not count again and again."""

from __future__ import annotations

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.step_groups import Base, session_advantages
from verl_agentic.errors import ConfigError

Tensor = torch.Tensor


@advantage(needs=("uses_B",), compares_siblings=True)
def vspo(batch: CreditBatch, *, base: Base = "grpo", clip: float | None = None) -> Tensor:
    """Returns `[B, T]`: the group advantage, clipped, and divided by how often the group is in use.

    The copies of a group that is used n times get 1 / n each, so that their sum is what the group would count once;
    the advantage is clipped first, which keeps that so. Sessions alone in their group get 0; void rows neither count
    nor learn.

    Args:
        batch: copies of a group are groups of their own, with sessions of their own; `uses_B` says how many there are.
        base: `grpo`, `dr_grpo` or `rloo`; see `step_groups.session_advantages`.
        clip: greatest absolute advantage, before the division; None clips nothing.

    Which groups are used again is chosen elsewhere, by their value. The paper stabilises such groups by "value
    smoothing clipping", whose formula we could not read: this one is ours.

    Paper: https://arxiv.org/abs/2512.07478
    """
    assert batch.uses_B is not None
    if clip is not None and not clip > 0:
        raise ConfigError(f"clip must be positive, or null for none, got {clip!r}")
    advantages_S = session_advantages(batch, base=base)
    if clip is not None:
        advantages_S = advantages_S.clamp(-clip, clip)
    return batch.to_tokens(advantages_S) / batch.uses_B.clamp(min=1).unsqueeze(-1)
