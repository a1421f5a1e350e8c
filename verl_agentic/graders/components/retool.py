"""ReTool's outcome: +1 or -1."""

from __future__ import annotations

from verl_agentic.graders.maths.boxed_math import truth_problem
from verl_agentic.graders.maths.math_outcome import math_outcome
from verl_agentic.rewards.answers.tool_calls import was_carried_out
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample


def softened(num_turns: int) -> float:
    """Returns the reward of a wrong answer after tool use: min(-0.6, -1 + 0.1 * (num_turns - 2) / 2).

    Args:
        num_turns: user, policy and tool messages, as verl counts them; 2 without a tool.
    """
    return min(-0.6, -1.0 + 0.1 * (num_turns - 2) / 2)


@component(low=-1.0, high=1.0, kind="outcome", own_deadline=True, solved=1.0, truth_problem=truth_problem)
async def retool(sample: Sample, *, soften_wrong: bool = False, timeout_s: float = 5.0) -> Value:
    r"""Returns 1 when the last `\boxed{...}` equals the ground truth, else -1; abstains without ground truth.

    Args:
        soften_wrong: lowers the penalty of a wrong answer with the number of tool turns, to 0.6 at least (`softened`).
        timeout_s: deadline, counted from the start of the verification.

    Raises:
        DataError: the ground truth is not an expression.
        ScoringError: the verifier cannot read the ground truth, or failed.

    Paper: https://arxiv.org/abs/2504.11536 (section 2.2). Deviations: the softened form is from verl's recipe, which
    counts every turn with a tool result. Here only turns count in which a call was carried out.
    """
    outcome = await math_outcome(sample, timeout_s=timeout_s)
    if outcome is None:
        return ABSTAIN
    if outcome.is_right:
        return 1.0
    if not soften_wrong:
        return -1.0
    tool_turns = sum(any(map(was_carried_out, turn.calls)) for turn in sample.turns)
    return softened(2 + 2 * tool_turns)
