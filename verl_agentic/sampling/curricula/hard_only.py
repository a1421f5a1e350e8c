"""Only prompts that the policy rarely solves."""

from __future__ import annotations

import numpy as np

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


@curriculum(revisits=True)
def hard_only(pool: Pool, *, max_rate: float = 0.25) -> Floats:
    """Returns 1 for prompts with a pass rate of at most `max_rate` or not seen yet, else 0.

    Groups of such prompts mostly fail as a whole and then teach nothing by their outcome: use it together with rewards
    of steps (a process reward model, sub-goals), as the seed does. Should no prompt be hard, all are drawn alike.
    The share `agentic.curriculum.floor` goes to easy prompts, too, because what was learnt can be forgotten; 0 leaves
    them out.

    Args:
        max_rate: the greatest pass rate of a hard prompt. Our choice: the seed names none.

    Raises:
        ConfigError: not in [0, 1].
    """
    if not 0 <= max_rate <= 1:
        raise ConfigError(f"hard_only.max_rate must be in [0, 1], got {max_rate}")
    return ((pool.rates.mean_N <= max_rate) | ~pool.rates.is_seen_N).astype(np.float64)
