"""A penalty for useless calls."""

from __future__ import annotations

from verl_agentic.rewards.answers.tool_calls import are_redundant, redundancy
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import clip_total


@component(low=-1.0, high=0.0, inline=True)
def efficiency(sample: Sample) -> Graded:
    """Returns -(useless calls) / (calls), 0 without calls; each turn loses its own share.

    A call is useless if it could not be carried out, or repeats an earlier one with the same result. ToolRL
    (https://arxiv.org/abs/2504.13958) has no such term in its paper or code.
    """
    count = len(sample.calls)
    turns = [turn.index for turn in sample.turns for _ in turn.calls]
    in_vain = [turn for turn, is_vain in zip(turns, are_redundant(sample.calls), strict=True) if is_vain]
    graded = clip_total(((turn, -1.0 / count) for turn in in_vain), low=-1.0, high=0.0)
    return Graded(value=-redundancy(sample.calls), turns=graded.turns)
