"""Trajectories with their outcome: which ones of a run, and what of them is trained."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from verl_agentic.data.datasets.outcome_rows import encode_outcome_row, outcome_rows
from verl_agentic.data.stored_samples import StoredSample
from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Call, Sample, Turn
from verl_agentic.types import Message, StopReason

END = "<|im_end|>"
CALLING = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call>' + END
DOUBLE = {"type": "function", "function": {"name": "double", "description": "Doubles.", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}}}}  # fmt: skip
ROW = {"prompt": [{"role": "user", "content": "Hi"}], "messages": [{"role": "assistant", "content": "a"}], "outcome": 1}


def stored(session: int, score: dict[str, float] | None, *, turns: int = 2) -> StoredSample:
    call = Call(name="double", arguments={"number": 21}, result="42")
    played = (
        Turn(index=0, text=CALLING, content="", calls=(call,), observations=("42",)),
        Turn(index=1, text=f"{session}{END}", content=str(session)),
    )
    sample = Sample(
        id=f"0/{session}",
        prompt=(Message("user", "Double 21."),),
        turns=played[:turns],
        final_answer=str(session),
        stop_reason=StopReason.ANSWERED,
    )
    return StoredSample(group="g", session=session, step=1, split="train", sample=sample, score=score)


def test_every_trajectory_with_an_outcome_is_a_row_and_shaping_is_not_in_it() -> None:
    played = [
        stored(0, {"score": 0.7, "acc": 1.0}),
        stored(1, {"score": 0.2, "acc": 0.0}),
        stored(2, None),
        stored(3, {"score": 1.0}),
        stored(4, {"score": 0.0, "acc": 0.0}, turns=0),
    ]
    good, bad = outcome_rows(played, tools_of=lambda sample: [DOUBLE])
    assert (good["outcome"], bad["outcome"]) == (1.0, 0.0)
    assert good["prompt"] == [{"role": "user", "content": "Double 21."}] and good["tools"] == [DOUBLE]
    assert good["messages"] == [
        {"role": "assistant", "text": CALLING},
        {"role": "tool", "content": "42", "name": "double"},
        {"role": "assistant", "text": f"0{END}"},
    ]


def test_validation_is_no_data_unless_it_is_asked_for() -> None:
    kept_out = dataclasses.replace(stored(1, {"acc": 0.0}), split="val")
    played = [stored(0, {"acc": 1.0}), kept_out]
    assert [row["outcome"] for row in outcome_rows(played)] == [1.0]
    assert [row["outcome"] for row in outcome_rows(played, splits=("train", "val"))] == [1.0, 0.0]


async def test_what_the_policy_wrote_counts_and_what_it_was_told_does_not(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    (row,) = outcome_rows([stored(7, {"score": 1.0, "acc": 0.5})], tools_of=lambda sample: [DOUBLE])
    encoded, outcome = await encode_outcome_row(row, codec=codec, tokenizer=tokenizer)
    encoded.check()
    sampled = [token for token, mask in zip(encoded.response_ids, encoded.response_mask, strict=True) if mask]
    assert tokenizer.decode(sampled) == f"{CALLING}7{END}" and outcome == 0.5
    assert "double(number): Doubles." in tokenizer.decode(encoded.prompt_ids)


@pytest.mark.parametrize("outcome", [1.5, -0.1, math.nan, "1", None])
async def test_an_outcome_that_is_no_probability_is_refused(outcome: Any, tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    with pytest.raises(DataError, match="between 0 and 1, got"):
        await encode_outcome_row({**ROW, "outcome": outcome}, codec=codec, tokenizer=tokenizer)


@pytest.mark.parametrize("key", ["prompt", "messages", "outcome"])
async def test_a_row_without_a_part_is_refused(key: str, tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    row = {name: value for name, value in ROW.items() if name != key}
    with pytest.raises(DataError, match=rf"lacks \['{key}'\]"):
        await encode_outcome_row(row, codec=codec, tokenizer=tokenizer)
