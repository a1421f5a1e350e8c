"""The reward of Absolute Zero's proposer."""

from __future__ import annotations

from verl_agentic.graders.groups.self_play import difficulty, flag, solve_rate
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample


@component(low=-1.0, high=1.0, kind="outcome", inline=True)
def proposer_absolute_zero(sample: Sample) -> Graded:
    """Returns 1 - p for the solver's success rate p; 0 if p is 0 or 1.

    -0.5 for a well-formed but wrong task, -1 for a malformed one. The paper's solver tries 8 times. The maximum is at
    the smallest p above 0: 0.875 for one success of 8. For the environment's report, see
    `verl_agentic.graders.groups.self_play`.

    Paper: https://arxiv.org/abs/2505.03335 (eq. 4 and 6)
    """
    rate = solve_rate(sample)
    if rate is None:
        return Graded(value=-0.5 if flag(sample, "well_formed") else -1.0, solved=0.0)
    value = difficulty(rate)
    return Graded(value=value, solved=value)
