"""VSPO: weighs prompts by their possible gain times the spread of their attempts."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats, task_values


@curriculum(revisits=True)
def value(pool: Pool, *, max_reward: float = 1.0) -> Floats:
    """Returns VSPO's value of every prompt, from the table of pass rates.

    VSPO computes the value of finished groups and replaces groups of a batch; the replay of gated buffers does that
    with `weight: value`. Here the value chooses the next prompts. New prompts have a pass rate of 1/2.

    Args:
        max_reward: maximum outcome.

    Raises:
        ConfigError: `max_reward` is not above 0.

    Paper: https://arxiv.org/abs/2512.07478 (two summaries agree on the formula; the paper's text could not be read)
    """
    if max_reward <= 0:
        raise ConfigError(f"value.max_reward must be above 0, got {max_reward}")
    return task_values(pool.rates.mean_N, pool.rates.std_N, max_reward=max_reward)
