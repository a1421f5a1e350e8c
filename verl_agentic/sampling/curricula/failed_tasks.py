"""WebRL: what failed comes back more often, and which tasks and actions are worth keeping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.pass_rates import Floats


@curriculum()
def failed_tasks(pool: Pool, *, delta: float = 1.0, max_failures: int = 8) -> Floats:
    """Returns 1 + delta * (groups in a row without a success), and 1 again after a success.

    Our design of what the seed says of WebRL ("failed tasks re-enter the buffer with more weight"): the paper has an
    LLM write new instructions from failed ones instead, for which see `is_worth_posing` and
    `verl_agentic.sampling.task_sets`.

    Args:
        delta: what a failure adds.
        max_failures: how many count at most, so that tasks nobody can solve do not take over.

    Raises:
        ConfigError: negative values.

    Paper: https://arxiv.org/abs/2411.02337 (the idea; weights and cap are ours)
    """
    if delta < 0 or max_failures < 0:
        raise ConfigError(f"failed_tasks needs delta >= 0 and max_failures >= 0, got {delta} and {max_failures}")
    return 1.0 + delta * np.minimum(pool.rates.failures_N, max_failures)


def is_worth_posing(values: Floats, *, low: float = 0.05, high: float = 0.75) -> NDArray[np.bool_]:
    """Tells which generated tasks WebRL keeps: those whose start the critic values at low to high, both included.

    Args:
        values: [N] the critic's value of the first state.
        low: below, a task counts as impossible.
        high: above, it counts as done. That both bounds belong to what is kept is our reading of its code.

    Paper: https://arxiv.org/abs/2411.02337
    """
    return (values >= low) & (values <= high)


def is_worth_replaying(probs: Floats, *, low: float = 0.5, high: float = 0.95) -> NDArray[np.bool_]:
    """Tells which actions of earlier successes WebRL replays: those with a probability above low, of at most high.

    Args:
        probs: [N] what the present policy gives the action: 1 / its perplexity.
        low: at and below, an action is too far from the policy.
        high: above, there is nothing left to learn from it.

    Paper: https://arxiv.org/abs/2411.02337
    """
    return (probs > low) & (probs <= high)
