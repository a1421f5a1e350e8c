"""Scores the final state of the database and the outputs that the user must get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.answers.ground_truth import object_of
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Value, component
from verl_agentic.rewards.sample import Sample

MAX_REPLY_CHARS = 2_000
"""Longer replies give the user no output."""
_MIN_COPY_CHARS = 100


def tau_bench_reward(
    *, db_equal: bool, outputs: Iterable[str], replies: Sequence[str], tool_outputs: Iterable[str] = ()
) -> float:
    """Returns 1 if the database equals the gold state and every output is in some reply, else 0.

    Outputs and replies are compared in lower case and without commas. Replies above 2,000 characters give no output,
    and neither do copies of a tool's output (of at least 100 letters and digits).
    """
    copied = [letters for text in tool_outputs if len(letters := _keep_letters(text)) >= _MIN_COPY_CHARS]
    reply_texts = [
        comparable_text(reply)
        for reply in replies
        if len(reply) <= MAX_REPLY_CHARS and not any(letters in _keep_letters(reply) for letters in copied)
    ]
    return float(db_equal and all(any(comparable_text(output) in reply for reply in reply_texts) for output in outputs))


def comparable_text(text: str) -> str:
    """Returns a text in lower case and without commas."""
    return text.lower().replace(",", "")


@component(low=0.0, high=1.0, kind="outcome", inline=True, needs_ground_truth=True)
def tau_bench(sample: Sample) -> Value:
    """Returns 1[the database equals the gold state] * 1[every required output was said to the user].

    The environment reports `db_equal` (0 or 1) in its `Reward.info`. Replies are the policy's turns without a tool
    call, without thoughts. 0 for an episode without an answer and without a call. Abstains without ground truth.

    Raises:
        DataError: the ground truth is not `{"outputs": [text, ...]}`; the list may be empty.
        ScoringError: the environment did not report `db_equal`.

    Paper: https://arxiv.org/abs/2406.12045. Deviations: the original removes commas only from replies, so an output
    with a comma is never found; here from both. An early version of its code checked the database only for tasks
    without outputs; the paper and this check both.
    """
    outputs = _read_outputs(object_of(sample.ground_truth, of="tau_bench").get("outputs"))
    info = dict(sample.env.info) if sample.env is not None else {}
    if "db_equal" not in info:
        raise ScoringError(f"the environment must report db_equal, got info {sorted(info)}; fix the environment")
    if is_silent(sample):
        return 0.0
    replies = [without_thoughts(turn.content) for turn in sample.turns if not turn.calls]
    results = [call.result for call in sample.calls if call.result]
    return tau_bench_reward(db_equal=info["db_equal"] > 0, outputs=outputs, replies=replies, tool_outputs=results)


def _read_outputs(outputs: Any) -> list[str]:
    if not isinstance(outputs, list | tuple) or not all(
        isinstance(output, str) and output.strip() for output in outputs
    ):
        raise DataError(f'ground truth of tau_bench must be {{"outputs": [text, ...]}}, got {outputs!r}; fix the row')
    return list(outputs)


def _keep_letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
