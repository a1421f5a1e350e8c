"""How many prompts to hand out so that a batch becomes full and little is left over."""

from __future__ import annotations

import math


def prompts_due(*, batch_size: int, num_useful: int, num_open: int, keep_rate: float, allowed: int) -> int:
    """Returns how many prompts are needed beyond those that are open, in expectation, and at most `allowed`.

    Open groups give `keep_rate * num_open` useful ones; what is missing is handed out `1 / keep_rate` times. When
    nothing is open, at least one is handed out.

    Args:
        batch_size: groups that are wanted.
        num_useful: groups that are there.
        num_open: groups that are played, or wait to be judged.
        keep_rate: share of groups that turn out useful, above 0.
        allowed: no more than that.
    """
    missing = batch_size - num_useful - keep_rate * num_open
    # A hair above a whole number is rounding, no need for one more prompt.
    return max(0, min(allowed, math.ceil(missing / keep_rate - 1e-9)))
