"""ToolRL with a penalty for useless calls."""

from __future__ import annotations

from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.components.toolrl import toolrl_form
from verl_agentic.graders.turns.toolrl_scores import HIGHEST, ExpectedTurn, call_score
from verl_agentic.rewards.answers.empty_work import is_empty
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches
from verl_agentic.rewards.answers.tool_calls import are_redundant, redundancy
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample

By = Literal["calls", "answer"]


def _check_options(alpha: float, gamma: float) -> None:
    if not (gamma >= 0 and alpha > 0 and gamma <= alpha < 0.5):
        raise ConfigError(
            f"toolrl_efficiency needs 0 <= gamma <= alpha < 0.5, alpha > 0, got alpha={alpha}, gamma={gamma}"
        )


@component(
    low=lambda gamma: -gamma,
    high=lambda alpha: 1.0 + alpha,
    kind="outcome",
    inline=True,
    info=("correct", "form", "redundancy"),
    check=_check_options,
    needs_ground_truth=True,
)
def toolrl_efficiency(
    sample: Sample, *, by: By = "calls", alpha: float = 0.2, gamma: float = 0.1, starts_in_reasoning: bool = False
) -> Graded:
    """Returns correct + alpha * form - gamma * redundancy; abstains without ground truth.

    Correct and form are 1 or 0. Redundancy is the share of calls that could not be carried out, or that repeat an
    earlier one with the same result.

    Args:
        by: criterion of correct: `calls`: all useful calls are the expected ones (if none is expected, there is an
            answer); `answer`: an exact match of the final answer.
        alpha: weight of the form, below half of the reward of a right episode.
        gamma: weight of the redundancy, at most alpha.
        starts_in_reasoning: the chat template has opened `<think>` in the prompt.

    Raises:
        DataError: the ground truth does not have the form that `by` needs.

    This form is ours. ToolRL (https://arxiv.org/abs/2504.13958) has form and fit of the calls only: `toolrl`.
    """
    expected = ExpectedTurn.of(sample.ground_truth) if by == "calls" else None
    if expected is None:
        correct = matches(without_thoughts(sample.final_answer), golden_answers_of(sample.ground_truth))
    else:
        in_vain = are_redundant(sample.calls)
        useful = [(c.name, c.arguments) for c, vain in zip(sample.calls, in_vain, strict=True) if not vain]
        is_right = call_score(expected.calls, useful) == HIGHEST if expected.calls else not useful
        # Making no call is right only with an answer. Otherwise an empty episode would be right.
        correct = float(is_right and (bool(expected.calls) or not is_empty(sample.final_answer)))
    form = toolrl_form(sample, expected, starts_in_reasoning=starts_in_reasoning)
    wasted = redundancy(sample.calls)
    info = {"correct": correct, "form": form, "redundancy": wasted}
    return Graded(value=correct + alpha * form - gamma * wasted, info=info, solved=correct)
