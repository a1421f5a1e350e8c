"""Advantages of groups that are used several times, divided by the number of uses."""

from __future__ import annotations

from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.step_groups import Base, session_advantages


@advantage(needs=("uses_B",), compares_siblings=True)
def per_use(batch: CreditBatch, *, base: Base = "grpo", clip: float | None = None) -> Tensor:
    """Returns `[B, T]`: the group advantage, clipped, and divided by the number of uses of the group.

    Each copy of a group that is used n times gets 1 / n of its advantage. Clipping comes before the division. Void rows
    and sessions alone in their group get 0.

    Args:
        batch: each copy of a group is a group with its own sessions; `uses_B` is the number of copies.
        clip: maximum absolute advantage before the division; None: no clipping.

    Replay chooses the groups that are used again, by their value. This estimator is ours, for the method `vspo`: VSPO
    (2512.07478) applies "value smoothing clipping" to them, whose formula was not found.
    """
    assert batch.uses_B is not None
    if clip is not None and not clip > 0:
        raise ConfigError(f"clip must be positive, or null for none, got {clip!r}")
    advantages_S = session_advantages(batch, base=base)
    if clip is not None:
        advantages_S = advantages_S.clamp(-clip, clip)
    return batch.to_tokens(advantages_S) / batch.uses_B.clamp(min=1).unsqueeze(-1)
