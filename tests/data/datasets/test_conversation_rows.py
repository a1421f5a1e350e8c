"""Conversations become the rows that a rollout with the same turns would have made."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.datasets.conversation_rows import with_ids

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


def call(a: int, b: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "add", "arguments": {"a": a, "b": b}}}


def said(role: str, content: str = "", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


PARALLEL = [
    said("system", "Be brief."),
    said("user", "1+2 and 3+4?"),
    said("assistant", tool_calls=[call(1, 2), call(3, 4)]),
    said("tool", "3", name="add"),
    said("tool", "7", name="add"),
    said("assistant", "3 and 7"),
    said("user", "And 5+5?"),
    said("assistant", "10"),
]


async def made(chat: tuple[Any, Any], messages: list[dict[str, Any]], shape: Any = "sft") -> Any:
    tokenizer, codec = chat
    record = {"messages": messages, "tools": [TOOL], "class": "x"}
    (row,) = await with_ids([record], codec=codec, tokenizer=tokenizer, shape=shape)
    return row


def spans(row: dict[str, Any], chat: tuple[Any, Any], bit: int) -> list[str]:
    runs = groupby(zip(row["loss_mask"], row["input_ids"], strict=True), key=lambda pair: pair[0])
    return [chat[0].decode([token for _, token in run]) for mask, run in runs if mask == bit]


async def test_the_ids_are_those_of_the_template_and_the_turns_of_the_assistant_are_trained(tiny_chat: Any) -> None:
    row = await made(tiny_chat, PARALLEL)
    whole = tiny_chat[0].apply_chat_template(PARALLEL, tools=[TOOL], tokenize=False)
    assert tiny_chat[0].decode(row["input_ids"]) == whole.removesuffix("\n")
    first, *others = spans(row, tiny_chat, 1)
    assert first.count("<tool_call>") == 2 and '"arguments": {"a": 3, "b": 4}' in first
    assert others == ["3 and 7<|im_end|>", "10<|im_end|>"]
    assert row["class"] == "x" and len(spans(row, tiny_chat, 0)) == 3


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
async def test_thoughts_are_trained_before_their_turn(tiny_chat: Any, key: str) -> None:
    row = await made(tiny_chat, [said("user", "1+2?"), said("assistant", tool_calls=[call(1, 2)], **{key: "Add them."}),
                                 said("tool", "3", name="add"), said("assistant", "3", **{key: "Done."})])  # fmt: skip
    first, last = spans(row, tiny_chat, 1)
    assert first.startswith("<think>\nAdd them.\n</think>\n\n<tool_call>")
    assert last == "<think>\nDone.\n</think>\n\n3<|im_end|>"


async def test_a_protocol_that_writes_no_thoughts_refuses_them(tiny_chat: Any) -> None:
    from verl_agentic.episode.protocols.load_protocol import load_protocol
    from verl_agentic.episode.protocols.text_codec import TextCodec

    protocol = replace(load_protocol("search_r1"), reasoning=None)
    codec = TextCodec(protocol, tokenizer=tiny_chat[0], builder=None)
    record = {"messages": [said("user", "1+2?"), said("assistant", "3", thinking="Add them.")]}
    (row,) = await with_ids([record], codec=codec, tokenizer=tiny_chat[0], shape="sft")
    assert "writes no thoughts" in row


async def test_continual_pretraining_trains_every_token(tiny_chat: Any) -> None:
    rows = [await made(tiny_chat, PARALLEL, shape) for shape in ("sft", "cpt")]
    assert rows[0]["input_ids"] == rows[1]["input_ids"] and set(rows[1]["loss_mask"]) == {1}


async def test_a_text_that_would_be_read_as_a_call_is_refused(tiny_chat: Any) -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    reason = await made(
        tiny_chat, [said("user", "1+2?"), said("assistant", text), said("user", "?"), said("assistant")]
    )
    assert reason.startswith("the protocol reads other calls: ")


async def test_rows_without_messages_are_refused(tiny_chat: Any) -> None:
    with pytest.raises(ConfigError, match="token ids"):
        await with_ids([{"prompt": []}], codec=tiny_chat[1], tokenizer=tiny_chat[0], shape="sft")
