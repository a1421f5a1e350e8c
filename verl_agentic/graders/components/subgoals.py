"""Subgoals of the row, each rewarded once, on the turn that reached it."""

from __future__ import annotations

from verl_agentic.graders.turns.subgoal_checks import reached_turns, read_subgoals
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import clip_total


@component(high=lambda cap: cap, inline=True)
def subgoals(sample: Sample, *, each: float = 0.1, cap: float = 0.5) -> Graded:
    """Returns `each` per subgoal that was reached, at most `cap`; abstains on rows without subgoals.

    A subgoal is rewarded once, on the first turn that reached it. The row has them in `extra_info.subgoals`, in the
    form of `verl_agentic.graders.turns.subgoal_checks`.

    Args:
        each: reward of a subgoal.
        cap: maximum reward of all.

    Raises:
        DataError: the row's subgoals have another form.
    """
    listed = read_subgoals(sample.extra.get("subgoals") or [])
    if not listed:
        return ABSTAIN
    return clip_total(((turn, each) for turn in reached_turns(listed, sample)), low=0.0, high=cap)
