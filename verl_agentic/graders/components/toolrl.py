"""ToolRL's outcome: the form of the turns, and the match of the calls with the expected ones."""

from __future__ import annotations

from verl_agentic.graders.turns.toolrl_scores import HIGHEST, LOWEST, ExpectedTurn, call_score, has_toolrl_form
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.answers.tool_calls import is_well_formed
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts


def toolrl_form(sample: Sample, expected: ExpectedTurn | None, *, starts_in_reasoning: bool) -> float:
    """Returns 1 when all turns have ToolRL's form and there is an answer or a call, else 0.

    An episode of one turn must have the expected form. With several turns, each must have the form of its content:
    calls, a response, or both.
    """
    if is_silent(sample):
        return 0.0
    turns = list(texts(sample.turns, starts_in_reasoning=starts_in_reasoning))
    if expected is not None and len(turns) == 1:
        forms = [(turns[0], bool(expected.calls), expected.has_response)]
    else:
        forms = [(text, "<tool_call>" in text, "<response>" in text) for text in turns]
    return float(bool(forms) and all(has_toolrl_form(t, with_calls=c, with_response=r) for t, c, r in forms))


@component(low=LOWEST, high=HIGHEST + 1.0, kind="outcome", inline=True, info=("form", "calls"), needs_ground_truth=True)
def toolrl(sample: Sample, *, starts_in_reasoning: bool = False) -> Graded:
    """Returns form + fit of the calls, from -3 to 4: 1 or 0, and -3 to 3 (`toolrl.call_score`).

    The minimum fit if a call could not be read, 0 if no call is expected. All calls of the episode count. `acc`
    is 1 if all calls fit (if none is expected: for an answer in the right form). Abstains without ground truth.

    Args:
        starts_in_reasoning: the chat template has opened `<think>` in the prompt.

    Raises:
        DataError: the ground truth is neither expected calls nor a turn in ToolRL's tags.

    Paper: https://arxiv.org/abs/2504.13958 (section 3.3). Deviations: the original accepts several thoughts per turn,
    here one. It judges single turns; here the calls of all turns count together. For a term for efficiency, see
    `toolrl_efficiency`.
    """
    expected = ExpectedTurn.of(sample.ground_truth)
    form = toolrl_form(sample, expected, starts_in_reasoning=starts_in_reasoning)
    fit, is_solved = 0.0, form == 1.0 and not sample.calls
    if expected.calls:
        is_readable = all(map(is_well_formed, sample.calls))
        called = [(call.name, call.arguments) for call in sample.calls]
        fit = call_score(expected.calls, called) if is_readable else LOWEST
        is_solved = fit == HIGHEST
    return Graded(value=form + fit, info={"form": form, "calls": fit}, solved=float(is_solved))
