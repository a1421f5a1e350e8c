"""Verdict on the last boxed answer of an episode, for the components `math`, `retool` and `reft`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from verl_agentic.base.text.boxes import answer_in_boxes
from verl_agentic.base.text.reasoning import outside_reasoning
from verl_agentic.graders.maths.boxed_math import expression_of, judge
from verl_agentic.rewards.sample import Sample


@dataclass(frozen=True, kw_only=True)
class MathOutcome:
    """The verdict on an episode."""

    boxed: str | None
    """The judged answer; None if the policy gave none."""
    is_right: bool
    is_judged: bool = True
    """False if algebra did not finish in time; the answer then counts as wrong."""


async def math_outcome(sample: Sample, *, timeout_s: float, must_be_evaluated: bool = False) -> MathOutcome | None:
    r"""Returns the verdict on the last complete `\boxed{...}` outside reasoning and calls; None without truth.

    Args:
        timeout_s: deadline, counted from the start of the verification.

    Raises:
        DataError: the ground truth is not an expression.
        ScoringError: the verifier cannot read the ground truth, or failed.
    """
    if sample.ground_truth is None:
        return None
    truth = expression_of(sample.ground_truth)
    # In a thread, because searching many MB of text takes time.
    boxed = await asyncio.to_thread(_last_boxed, sample)
    if not boxed:
        return MathOutcome(boxed=boxed, is_right=False)
    verdict = await judge(boxed, truth, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    return MathOutcome(boxed=boxed, is_right=verdict.is_right, is_judged=verdict.is_judged)


def _last_boxed(sample: Sample) -> str | None:
    answers = (answer_in_boxes(outside_reasoning(turn.content)) for turn in reversed(sample.turns))
    return next((boxed for boxed in answers if boxed is not None), None)
