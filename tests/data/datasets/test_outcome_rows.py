"""Trajectories with their outcome: what of them is trained."""

from __future__ import annotations

import math
from typing import Any

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.data.datasets.outcome_rows import encode_outcome_row

END = "<|im_end|>"
CALLING = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call>' + END
DOUBLE = {"type": "function", "function": {"name": "double", "description": "Doubles.", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}}}}  # fmt: skip
ROW = {"prompt": [{"role": "user", "content": "Hi"}], "messages": [{"role": "assistant", "content": "a"}], "outcome": 1}


IDS = {"prompt_ids": [1, 2], "response_ids": [3, 4, 5], "response_mask": [1, 0, 1], "outcome": 0.25}


async def test_what_the_policy_wrote_counts_and_what_it_was_told_does_not(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    messages = [
        {"role": "assistant", "text": CALLING},
        {"role": "tool", "content": "42", "name": "double"},
        {"role": "assistant", "text": f"7{END}"},
    ]
    row = {**ROW, "messages": messages, "tools": [DOUBLE], "outcome": 0.5}
    encoded, outcome = await encode_outcome_row(row, codec=codec, tokenizer=tokenizer)
    encoded.check()
    sampled = [token for token, mask in zip(encoded.response_ids, encoded.response_mask, strict=True) if mask]
    assert tokenizer.decode(sampled) == f"{CALLING}7{END}" and outcome == 0.5
    assert "double(number): Doubles." in tokenizer.decode(encoded.prompt_ids)


async def test_a_row_of_ids_is_taken_as_it_is(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    row, outcome = await encode_outcome_row(IDS, codec=codec, tokenizer=tokenizer)
    row.check()
    assert (row.prompt_ids, row.response_ids, row.response_mask, outcome) == ([1, 2], [3, 4, 5], [1, 0, 1], 0.25)
    for change, message in (
        ({"response_mask": [1]}, "needs response_ids and a response_mask"),
        ({"outcome": 2}, "between 0 and 1, got 2"),
    ):
        with pytest.raises(DataError, match=message):
            await encode_outcome_row({**IDS, **change}, codec=codec, tokenizer=tokenizer)


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
