"""WebRL: draws failed tasks more often."""

from __future__ import annotations

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


@curriculum()
def failed_tasks(pool: Pool, *, delta: float = 1.0, max_failures: int = 8) -> Floats:
    """Returns 1 + delta * (groups in a row without a success), and 1 again after a success.

    In the paper an LLM writes new instructions from failed ones; for that, set `mutator` and `value_bounds` of
    `agentic.curriculum.task_set`.

    Args:
        delta: weight added per failure.
        max_failures: maximum number of failures that count, so that unsolvable tasks do not dominate.

    Raises:
        ConfigError: a value is negative.

    Paper: https://arxiv.org/abs/2411.02337. Deviations: weights and cap are ours.
    """
    if delta < 0 or max_failures < 0:
        raise ConfigError(f"failed_tasks needs delta >= 0 and max_failures >= 0, got {delta} and {max_failures}")
    return 1.0 + delta * np.minimum(pool.rates.failures_N, max_failures)
