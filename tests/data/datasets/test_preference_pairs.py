"""Pairs of trajectories: what of them is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message, StopReason
from verl_agentic.data.datasets.preference_pairs import encode_pair, written_messages
from verl_agentic.rewards.sample import Call, Sample, Turn

PROMPT = (Message("user", "Double 21."),)
DOUBLE = {"type": "function", "function": {"name": "double", "description": "Doubles.", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}}}}  # fmt: skip
WRITTEN = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call>'
END = "<|im_end|>"


def sample(answer: str, prompt: tuple[Message, ...] = PROMPT) -> Sample:
    """Calls the tool, is told to go on by a user, and answers."""
    call = Call(name="double", arguments={"number": 21}, result="42")
    turns = (
        Turn(index=0, text=WRITTEN + END, content="", calls=(call,), observations=("42", "Go on.")),
        Turn(index=1, text=answer, content=answer),
    )
    return Sample(id="0/0", prompt=prompt, turns=turns, final_answer=answer, stop_reason=StopReason.ANSWERED)


def pair_of(chosen: Sample, rejected: Sample) -> dict[str, Any]:
    sides = {"chosen": written_messages(chosen), "rejected": written_messages(rejected)}
    return {"prompt": [message.to_dict() for message in PROMPT], "tools": [DOUBLE], **sides}


def test_a_trajectory_is_written_as_messages_with_its_texts() -> None:
    assert written_messages(sample("1")) == [
        {"role": "assistant", "text": WRITTEN + END},
        {"role": "tool", "content": "42", "name": "double"},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "text": "1"},
    ]


def test_what_is_no_result_of_a_call_was_said_by_a_user() -> None:
    call = Call(name="double", arguments={"number": 21}, result="42")
    told = Turn(index=0, text=WRITTEN, content="", calls=(call,), observations=("Hurry up.", "42"))
    subject = replace(sample("x"), turns=(told, *sample("x").turns[1:]))
    assert [message["role"] for message in written_messages(subject)] == ["assistant", "user", "tool", "assistant"]


async def test_what_the_policy_wrote_counts_and_what_it_was_told_does_not(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    pair = pair_of(sample(f"0{END}"), sample(f"1{END}"))
    row = (await encode_pair(pair, codec=codec, tokenizer=tokenizer))["chosen"]
    row.check()
    assert "double(number): Doubles." in tokenizer.decode(row.prompt_ids)
    text, trained = "", ""
    for token, mask in zip(row.response_ids, row.response_mask, strict=True):
        text += tokenizer.decode([token])
        trained += tokenizer.decode([token]) if mask else ""
    assert trained == f"{WRITTEN}{END}0{END}", "the results of the tool and what a user said are masked"
    assert text == (
        f"{WRITTEN}{END}\n<|im_start|>user\n<tool_response>\n42\n</tool_response>{END}\n"
        f"<|im_start|>user\nGo on.{END}\n<|im_start|>assistant\n0{END}"
    )


async def test_messages_are_written_as_the_protocol_writes_them_and_texts_stand_as_they_are(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    call = {"function": {"name": "double", "arguments": {"number": 21}}}
    pair = {
        "prompt": [{"role": "user", "content": "Double 21."}],
        "chosen": [{"role": "assistant", "content": "", "tool_calls": [call]}],
        "rejected": [{"role": "assistant", "text": "It was cut sh"}],
    }
    rows = await encode_pair(pair, codec=codec, tokenizer=tokenizer)
    assert [tokenizer.decode(rows[side].response_ids) for side in rows] == [WRITTEN + END, "It was cut sh"]
    assert rows["chosen"].prompt_ids == rows["rejected"].prompt_ids


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ([], "assistant"),
        ([{"role": "tool", "content": "42"}], "assistant"),
        ([{"role": "assistant", "content": "a"}] * 2, "follow each other"),
    ],
)
async def test_a_side_that_no_policy_could_have_written_is_refused(
    side: list[dict[str, Any]], message: str, tiny_chat: Any
) -> None:
    tokenizer, codec = tiny_chat
    good = [{"role": "assistant", "content": "42"}]
    pair = {"prompt": [{"role": "user", "content": "Double 21."}], "chosen": good, "rejected": side}
    with pytest.raises(DataError, match=message):
        await encode_pair(pair, codec=codec, tokenizer=tokenizer)


IDS = {
    "prompt_ids": [1, 2],
    "chosen_ids": [3, 4, 5],
    "chosen_mask": [1, 0, 1],
    "rejected_ids": [6],
    "rejected_mask": [1],
}


async def test_a_pair_of_ids_is_taken_as_it_is(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    rows = await encode_pair(IDS, codec=codec, tokenizer=tokenizer)
    for side, row in rows.items():
        row.check()
        found = (row.prompt_ids, row.response_ids, row.response_mask)
        assert found == ([1, 2], IDS[f"{side}_ids"], IDS[f"{side}_mask"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rejected_mask": [0]}, "rejected_ids"),
        ({"chosen_mask": [1, 0]}, "chosen_ids"),
        ({"chosen_mask": [1, 2, 1]}, "chosen_ids"),
        ({"chosen_ids": None}, "chosen_ids"),
        ({"prompt_ids": []}, "prompt_ids"),
        ({"rejected_ids": [10**6]}, "rejected_ids"),
        ({"prompt_ids": [-1]}, "prompt_ids"),
    ],
)
async def test_ids_that_do_not_fit_the_model_or_their_mask_are_refused(
    change: dict[str, Any], message: str, tiny_chat: Any
) -> None:
    tokenizer, codec = tiny_chat
    with pytest.raises(DataError, match=message):
        await encode_pair({**IDS, **change}, codec=codec, tokenizer=tokenizer)
