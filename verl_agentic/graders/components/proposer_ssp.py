"""The reward of the proposer in search self-play."""

from __future__ import annotations

from typing import Literal

from verl_agentic.graders.groups.self_play import flag, solve_rate
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample

Form = Literal["adversarial", "intermediate"]


def ssp_reward(rate: float, form: Form) -> float:
    """Returns 1 - p, or 4 p (1 - p), which has its maximum at p = 1/2."""
    return 1.0 - rate if form == "adversarial" else 4.0 * rate * (1.0 - rate)


@component(kind="outcome", inline=True)
def proposer_ssp(sample: Sample, *, form: Form = "adversarial") -> Value:
    """Returns 1 - p for the solver's success rate p; abstains if the question fails the check.

    The check fails if the question could not be posed, or cannot be answered from the proposer's own documents. Without
    it, questions without an answer would get the highest reward. For the check and the environment's report, see
    `verl_agentic.graders.groups.self_play`.

    Args:
        form: `adversarial` as above; `intermediate` for 4 p (1 - p).

    Paper: https://arxiv.org/abs/2510.18821
    """
    rate = solve_rate(sample)
    if rate is None or not flag(sample, "rag_check"):
        return ABSTAIN
    return ssp_reward(rate, form)
