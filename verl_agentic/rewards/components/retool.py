"""ReTool's outcome: +1 or -1."""

from __future__ import annotations

from verl_agentic.rewards.answers.math_outcome import math_outcome
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.tool_calls.calls import was_carried_out


def softened(num_turns: int) -> float:
    """Returns what a wrong answer costs after some use of tools: min(-0.6, -1 + 0.1 * (num_turns - 2) / 2).

    Args:
        num_turns: messages of the prompt's user, the policy and the tools, as verl counts them; 2 without a tool.
    """
    return min(-0.6, -1.0 + 0.1 * (num_turns - 2) / 2)


@component(low=-1.0, high=1.0, kind="outcome", own_deadline=True)
async def retool(sample: Sample, *, soften_wrong: bool = False, timeout_s: float = 5.0) -> Value:
    r"""Returns 1 when the last `\boxed{...}` equals the ground truth, else -1; abstains without ground truth.

    Args:
        sample: the episode.
        soften_wrong: a wrong answer costs less the more turns with tools there were, at least 0.6 (`softened`).
        timeout_s: deadline of the verdict, from when a verifier has taken it up.

    Raises:
        DataError: the ground truth is no expression.
        ScoringError: the verifier cannot read the ground truth, or failed.

    Paper: https://arxiv.org/abs/2504.11536 (section 2.2). Deviations: the softened form is that of verl's recipe, not
    of the paper; there every turn with an answer of a tool counts, here only one in which a tool got to work.
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
