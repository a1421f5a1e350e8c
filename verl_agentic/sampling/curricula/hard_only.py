"""Only prompts that the policy rarely solves."""

from __future__ import annotations

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


@curriculum(revisits=True)
def hard_only(pool: Pool, *, max_rate: float = 0.25) -> Floats:
    """Returns 1 for prompts with a pass rate of at most `max_rate` or not seen yet, else 0.

    Groups of such prompts often fail as a whole and give no outcome signal. So combine it with step rewards (a process
    reward model, subgoals). If no prompt is hard, all are drawn equally. The share `agentic.curriculum.floor` of draws
    also covers easy prompts, against forgetting. Set it to 0 to exclude them.

    Args:
        max_rate: maximum pass rate of a hard prompt. The default is ours.

    Raises:
        ConfigError: `max_rate` is not in [0, 1].
    """
    if not 0 <= max_rate <= 1:
        raise ConfigError(f"hard_only.max_rate must be in [0, 1], got {max_rate}")
    return ((pool.rates.mean_N <= max_rate) | ~pool.rates.is_seen_N).astype(np.float64)
