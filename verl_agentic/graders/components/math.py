"""Compares the last boxed answer with the ground truth."""

from __future__ import annotations

from verl_agentic.graders.maths.boxed_math import truth_problem
from verl_agentic.graders.maths.math_outcome import math_outcome
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome", own_deadline=True, truth_problem=truth_problem, info=("unjudged",))
async def math(sample: Sample, *, timeout_s: float = 5.0, must_be_evaluated: bool = False) -> Graded:
    r"""Returns 1 when the last `\boxed{...}` that the policy wrote equals the ground truth, else 0.

    Numbers are compared exactly, in every notation; other answers by structure and value (2\sqrt{3} equals \sqrt{12}).
    Searches all of the policy's text outside of reasoning and calls, from its end. Abstains without ground truth. Info
    `unjudged` is 1 if algebra did not finish on the answer, which counts as wrong.

    Args:
        timeout_s: deadline, counted from the start of the verification.
        must_be_evaluated: rejects `12*34` if 408 is right; see `graders.maths.boxed_math.judge`.

    Raises:
        DataError: the ground truth is not an expression.
        ScoringError: the verifier cannot read the ground truth, or failed.

    Paper: https://arxiv.org/abs/2501.12948 (section 2.2.2, accuracy rewards). verl's `math_dapo` reads only the last
    300 characters; an earlier answer is wrong there.
    """
    outcome = await math_outcome(sample, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    if outcome is None:
        return ABSTAIN
    return Graded(value=float(outcome.is_right), info={"unjudged": float(not outcome.is_judged)})
