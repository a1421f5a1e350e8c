"""ReSeek's process reward: does the policy judge rightly what its searches found?"""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.rewards.answers.short_answer_scores import golden_answers_of
from verl_agentic.rewards.answers.short_answers import mentions
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample, Turn
from verl_agentic.rewards.text.tags import blocks
from verl_agentic.rewards.tool_calls.calls import was_carried_out

_VERDICTS = {"good": True, "yes": True, "bad": False, "no": False}


@component(low=-1.0, high=1.0)
def reseek(sample: Sample, *, search_tools: Sequence[str] = ("search",)) -> Graded:
    """Returns how far the policy's judgements of its searches agree with the ideal ones, turn by turn.

    The policy judges in the turn behind a search, with `<judge>good</judge>` or `bad` (or `yes` or `no`). Ideal is
    `good` when the results hold a golden answer, else `bad`. A turn earns +1/n when its judgement is the ideal
    one and -1/n when it is not, with n the number of searches that could be judged; one that is not judged earns
    nothing.
    Abstains without ground truth. It reads results of calls, by design.

    The answer's own reward is another component (`search_r1`, `exact_match`); the rubric weighs the two.

    Args:
        sample: the episode.
        search_tools: names of tools that search.

    Raises:
        DataError: the ground truth is no answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2510.00568. Deviations: there a reranker compares results and golden answer, and the
    weights are not public; here the words are compared, and the sum is scaled to [-1, 1], so that judging often earns
    nothing.
    """
    if sample.ground_truth is None:
        return ABSTAIN
    golden = golden_answers_of(sample.ground_truth)
    shares: dict[int, float] = {}
    judged = 0
    for turn, answer in zip(sample.turns, sample.turns[1:], strict=False):
        found = _found(turn, search_tools)
        if found is None:
            continue
        judged += 1
        verdict = _verdict(answer)
        if verdict is not None:
            shares[answer.index] = 1.0 if verdict == mentions(found, golden) else -1.0
    turns = {index: share / judged for index, share in shares.items()}
    return Graded(value=sum(turns.values()), turns=turns)


def _found(turn: Turn, search_tools: Sequence[str]) -> str | None:
    """Returns what the searches of a turn found; None when there was none."""
    calls = [call for call in turn.calls if call.name in search_tools and was_carried_out(call)]
    return "\n".join(call.result or "" for call in calls) if calls else None


def _verdict(turn: Turn) -> bool | None:
    """Returns the first judgement of a turn; None when there is none that can be read."""
    written = blocks(turn.text, "judge")
    return _VERDICTS.get(written[0].strip().lower()) if written else None
