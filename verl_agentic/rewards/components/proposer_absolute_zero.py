"""What Absolute Zero's proposer earns for a task."""

from __future__ import annotations

from verl_agentic.rewards.component import component
from verl_agentic.rewards.groups.self_play import difficulty, flag, solve_rate
from verl_agentic.rewards.sample import Sample


@component(low=-1.0, high=1.0, kind="outcome", inline=True)
def proposer_absolute_zero(sample: Sample) -> float:
    """Returns 1 - p, where p is the solver's rate of success; 0 where p is 0 (nobody solves it) or 1 (everybody does).

    -0.5 for a task that is well formed but wrong, -1 for one that is not. The paper has the solver try 8 times. It is
    greatest at the least p above 0, not at a half: 0.875 for one success of 8.

    `verl_agentic.rewards.groups.self_play` says what the environment must report.

    Paper: https://arxiv.org/abs/2505.03335 (eq. 4 and 6)
    """
    rate = solve_rate(sample)
    if rate is None:
        return -0.5 if flag(sample, "well_formed") else -1.0
    return difficulty(rate)
