"""What the proposer of search self-play earns for a question."""

from __future__ import annotations

from typing import Literal

from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.groups.self_play import flag, solve_rate
from verl_agentic.rewards.sample import Sample

Form = Literal["adversarial", "intermediate"]


def ssp_reward(rate: float, form: Form) -> float:
    """Returns 1 - p, or 4 p (1 - p), which is greatest where half of the tries are right."""
    return 1.0 - rate if form == "adversarial" else 4.0 * rate * (1.0 - rate)


@component(kind="outcome", inline=True)
def proposer_ssp(sample: Sample, *, form: Form = "adversarial") -> Value:
    """Returns 1 - p, where p is the solver's rate of success; abstains, so that the question is dropped, when it fails
    the check: it could not be posed, or cannot be answered from the documents that the proposer found itself.

    Without that check the form would pay most for questions that have no answer.
    `verl_agentic.rewards.groups.self_play` has the check and says what the environment must report.

    Args:
        form: `adversarial` as above; `intermediate` for 4 p (1 - p).

    Paper: https://arxiv.org/abs/2510.18821
    """
    rate = solve_rate(sample)
    if rate is None or not flag(sample, "rag_check"):
        return ABSTAIN
    return ssp_reward(rate, form)
