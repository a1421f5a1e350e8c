"""Is the database in the state that it should be in, and was the user told what they should be?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from verl_agentic.errors import DataError, ScoringError
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.ground_truth import object_of
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_silent
from verl_agentic.rewards.text.reasoning import without_thoughts


def tau_bench_reward(*, db_equal: bool, outputs: Iterable[str], replies: Sequence[str]) -> float:
    """Returns 1 when the database equals the gold state and every output is in some reply, else 0.

    Args:
        db_equal: the database is as it is after the gold actions.
        outputs: what the user must be told; compared in lower case and without commas.
        replies: what the user was told.
    """
    said = [_plain(reply) for reply in replies]
    return float(db_equal and all(any(_plain(output) in reply for reply in said) for output in outputs))


@component(low=0.0, high=1.0, kind="outcome", inline=True)
def tau_bench(sample: Sample) -> Value:
    """Returns 1[the database equals the gold state] * 1[every required output was said to the user].

    The environment reports `db_equal` (0 or 1) as a number of its `Reward.info`. Replies are what the policy wrote in
    turns without a tool call, thoughts left out: what stands beside a call, in a thought, in an argument or in a tool's
    answer was not said. 0 for an episode without an answer and without a call, also where nothing was to be done.
    Abstains without ground truth.

    Raises:
        DataError: the ground truth is not `{"outputs": [text, ...]}`; the list may be empty.
        ScoringError: the environment did not report `db_equal`.

    Paper: https://arxiv.org/abs/2406.12045. Deviations: the original removes commas from replies only, so an output
    with a comma is never found; here, from both. An early version of its code checked the outputs *or*, where a task
    has none, the database; the paper, and this, check both.
    """
    if sample.ground_truth is None:
        return ABSTAIN
    outputs = _outputs(object_of(sample.ground_truth, of="tau_bench").get("outputs"))
    info = dict(sample.env.info) if sample.env is not None else {}
    if "db_equal" not in info:
        raise ScoringError(f"the environment must report db_equal, got info {sorted(info)}; mend the environment")
    if is_silent(sample):
        return 0.0
    replies = [without_thoughts(turn.content) for turn in sample.turns if not turn.calls]
    return tau_bench_reward(db_equal=info["db_equal"] > 0, outputs=outputs, replies=replies)


def _outputs(outputs: Any) -> list[str]:
    if not isinstance(outputs, list | tuple) or not all(isinstance(one, str) and one.strip() for one in outputs):
        raise DataError(
            f'the ground truth of tau_bench must be {{"outputs": [text, ...]}}, got {outputs!r}; mend the row'
        )
    return list(outputs)


def _plain(text: str) -> str:
    return text.lower().replace(",", "")
