"""The number of prompts to send out to fill a batch."""

from __future__ import annotations

import math


def prompts_due(*, batch_size: int, num_useful: int, num_open: int, keep_rate: float, allowed: int) -> int:
    """Returns the expected number of prompts needed beyond the open ones, at most `allowed`.

    Open groups give `keep_rate * num_open` useful ones. For each missing group, `1 / keep_rate` prompts are sent out.

    Args:
        batch_size: number of wanted groups.
        num_useful: number of finished useful groups.
        num_open: number of groups that run or wait for gates.
        keep_rate: expected share of useful groups, above 0.
        allowed: maximum result.
    """
    missing = batch_size - num_useful - keep_rate * num_open
    # The small constant prevents one prompt more due to rounding.
    return max(0, min(allowed, math.ceil(missing / keep_rate - 1e-9)))
