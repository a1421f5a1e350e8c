"""Subgoals from a planner model, each verified by its own check."""

from __future__ import annotations

from verl_agentic.graders.turns.planned_subgoals import MAX_SUBGOALS, read_plan
from verl_agentic.graders.turns.subgoal_checks import reached_turns
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import clip_total


@component(high=lambda total: total, inline=True, info=("unverifiable",))
def llm_subgoals(sample: Sample, *, total: float = 0.5, max_subgoals: int = MAX_SUBGOALS) -> Graded:
    """Returns total * (subgoals reached) / (subgoals planned); abstains on rows without a plan.

    A subgoal is rewarded once, on the first turn that reached it. One that cannot be verified counts as planned and
    gives 0. The row has the planner's reply in `extra_info.plan`, in the form of
    `verl_agentic.graders.turns.planned_subgoals`; `verl-agentic data make plans` writes it there.

    Args:
        total: reward of a plan that is reached completely.
        max_subgoals: maximum number of subgoals in a plan.

    Raises:
        DataError: the plan is not of that form.
    """
    reply = sample.extra.get("plan")
    if reply is None:
        return ABSTAIN
    plan = read_plan(reply, max_subgoals=max_subgoals)
    each = total / plan.size
    graded = clip_total(((turn, each) for turn in reached_turns(plan.subgoals, sample)), low=0.0, high=total)
    return Graded(value=graded.value, turns=graded.turns, info={"unverifiable": float(len(plan.unverifiable))})
