"""ReSeek's process reward: whether the policy judges its search results correctly."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.base.text.tags import blocks, last_block
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches, mentions
from verl_agentic.rewards.answers.tool_calls import was_carried_out
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample, Turn

VERDICTS = {"good": True, "yes": True, "bad": False, "no": False}


@component(low=-1.0, high=1.0, needs_ground_truth=True)
def reseek(sample: Sample, *, search_tools: Sequence[str] = ("search",), facts: str = "facts") -> Graded:
    """Returns the agreement of the policy's judgements of its searches with the ideal ones, per turn.

    The policy judges in the turn after a search: it calls the tool `judge`, or writes `<judge>good</judge>` or `bad`
    (or `yes`, `no`). The ideal is `good` if the results contain a golden answer or a fact that leads to it, else `bad`.
    A turn gets +1/n for an ideal judgement and -1/n for another one, with n the number of searches; an unjudged search
    gives 0. Without a useful search and without the right answer there is no positive reward: otherwise searches for
    nonsense, judged `bad`, would be paid in full. Abstains without ground truth. It reads results of calls, by design.
    Combine it with a component for the answer (`search_r1`, `exact_match`).

    Args:
        search_tools: names of tools that search.
        facts: key of the row's `extra_info` with texts that are steps to the answer, such as the entities between two
            searches. Rows without it have the golden answers only.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2510.00568. Deviations: in the paper a reranker compares results and golden answer, and
    the authors' code gives 0.1 for a right `yes`, 0.02 for a right `no` and -0.05 for a wrong judgement. Here words are
    compared, and the sum is scaled to [-1, 1], so judging more often gives no more reward. The paper pays for useless
    searches, too.
    """
    golden = golden_answers_of(sample.ground_truth)
    useful = [*golden, *map(str, sample.extra.get(facts) or ())]
    may_gain = matches(last_block([sample.final_answer], "answer") or sample.final_answer, golden) > 0
    shares: dict[int, float] = {}
    judged = 0
    for turn, answer in zip(sample.turns, sample.turns[1:], strict=False):
        search_results = _get_search_results(turn, search_tools)
        if search_results is None:
            continue
        judged += 1
        is_useful = mentions(search_results, useful)
        may_gain = may_gain or is_useful
        verdict = _read_judgement(answer)
        if verdict is not None:
            shares[answer.index] = 1.0 if verdict == is_useful else -1.0
    turns = {index: share / judged for index, share in shares.items() if share < 0 or may_gain}
    return Graded(value=sum(turns.values()), turns=turns)


def _get_search_results(turn: Turn, search_tools: Sequence[str]) -> str | None:
    """Returns the search results of a turn, or None."""
    calls = [call for call in turn.calls if call.name in search_tools and was_carried_out(call)]
    return "\n".join(call.result or "" for call in calls) if calls else None


def _read_judgement(turn: Turn) -> bool | None:
    """Returns the first readable judgement of a turn, or None."""
    called = [str(call.arguments.get("verdict")) for call in turn.calls if call.name == "judge"]
    verdicts = called or blocks(turn.text, "judge")
    return VERDICTS.get(verdicts[0].strip().lower()) if verdicts else None
