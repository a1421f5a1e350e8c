"""Is the last boxed answer equal to the ground truth?"""

from __future__ import annotations

from verl_agentic.rewards.answers.math_outcome import math_outcome
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome", own_deadline=True, info=("unjudged",))
async def math(sample: Sample, *, timeout_s: float = 5.0, must_be_evaluated: bool = False) -> Graded:
    r"""Returns 1 when the last `\boxed{...}` that the policy wrote equals the ground truth, else 0.

    Plain numbers are compared exactly, in every notation; other answers are equal when math-verify finds them
    equivalent: 2\sqrt{3} and \sqrt{12}. All of the policy's text outside reasoning and calls is searched, from its end.
    Abstains without ground truth. Its info `unjudged` is 1 where algebra could not finish the answer, which counts as
    wrong.

    Args:
        sample: the episode.
        timeout_s: deadline of the verdict, from when a verifier has taken it up.
        must_be_evaluated: `12*34` is no answer where 408 is right: for tasks whose question it may be. See
            `rewards.answers.boxed_math.judge` for what counts as evaluated.

    Raises:
        DataError: the ground truth is no expression.
        ScoringError: the verifier cannot read the ground truth, or failed.

    Paper: https://arxiv.org/abs/2501.12948 (section 2.2.2, accuracy rewards). verl's `math_dapo` reads only the last
    300 characters; an answer in front of them is wrong there.
    """
    outcome = await math_outcome(sample, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    if outcome is None:
        return ABSTAIN
    return Graded(value=float(outcome.is_right), info={"unjudged": float(not outcome.is_judged)})
