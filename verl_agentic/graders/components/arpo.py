"""ARPO's outcome: F1 of the boxed answer, plus a bonus if both tools were used."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.base.text.tags import are_flat, marks
from verl_agentic.rewards.answers.short_answers import boxed_answer, golden_answers_of, has_research_form, overlap
from verl_agentic.rewards.answers.tool_calls import was_carried_out
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts

BOTH_TOOLS = 0.1


@component(
    low=-1.0,
    high=lambda search_tools, python_tools: 1.0 + (BOTH_TOOLS if search_tools and python_tools else 0.0),
    kind="outcome",
    inline=True,
    needs_ground_truth=True,
)
def arpo(
    sample: Sample, *, search_tools: Sequence[str] = ("search",), python_tools: Sequence[str] = ("python",)
) -> Graded:
    r"""Returns -1 for a broken form, else the F1 of the boxed answer, plus 0.1 when that is not 0 and both tools ran.

    `acc` is the F1.
    The form: paired tags of thoughts, searches and code, one `<answer>` in the last turn, with a `\boxed{}`. Abstains
    without ground truth.

    Args:
        search_tools: names of search tools; none where there is none, so that the maximum is 1.
        python_tools: names of tools that run code; the same.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2507.19849 (values as in its `deep_research.py`). Deviations: the original counts the
    texts `</search>` and `</python>` as tool use; here a call must have been carried out. It accepts opening and
    closing tags of thoughts in any order and takes the first answer tags; here they alternate, and the answer is in the
    last turn.
    """
    golden = golden_answers_of(sample.ground_truth)
    turns = list(texts(sample.turns, starts_in_reasoning=False))
    boxed = boxed_answer(turns)
    is_well_formed = has_research_form(turns) and all(are_flat(marks(text, ["python"])) for text in turns)
    if boxed is None or not is_well_formed:
        return Graded(value=-1.0, solved=0.0)
    used = {call.name for call in sample.calls if was_carried_out(call)}
    score = overlap(boxed, golden)
    both = not used.isdisjoint(search_tools) and not used.isdisjoint(python_tools)
    return Graded(value=score + BOTH_TOOLS if score and both else score, solved=score)
