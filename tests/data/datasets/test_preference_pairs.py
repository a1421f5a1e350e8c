"""Pairs of trajectories: which ones of a run, and what of them is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_agentic.data.datasets.preference_pairs import encode_pair, preference_pairs
from verl_agentic.data.stored_samples import StoredSample
from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Call, Sample, Turn
from verl_agentic.types import Message, StopReason

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


def stored(session: int, score: float | None, *, group: str = "g", **fields: Any) -> StoredSample:
    subject = fields.pop("subject", None) or sample(f"{session}{END}")
    paid = None if score is None else {"score": score, "acc": 1.0}
    return StoredSample(group=group, session=session, step=1, split="train", sample=subject, score=paid)


def last(side: list[dict[str, Any]]) -> str:
    return side[-1]["text"]


def test_a_group_gives_its_best_and_its_worst_member() -> None:
    group = [stored(3, 0.2), stored(0, 0.5), stored(1, 1.0), stored(2, None), stored(4, 1.0)]
    (pair,) = preference_pairs(group, tools_of=lambda sample: [DOUBLE])
    assert (last(pair["chosen"]), last(pair["rejected"])) == (f"1{END}", f"3{END}")
    assert pair["prompt"] == [{"role": "user", "content": "Double 21."}] and pair["tools"] == [DOUBLE]
    assert pair["scores"] == [1.0, 0.2]
    assert pair["chosen"][:3] == [
        {"role": "assistant", "text": WRITTEN + END},
        {"role": "tool", "content": "42", "name": "double"},
        {"role": "user", "content": "Go on."},
    ]


def test_what_is_no_result_of_a_call_was_said_by_a_user() -> None:
    call = Call(name="double", arguments={"number": 21}, result="42")
    told = Turn(index=0, text=WRITTEN, content="", calls=(call,), observations=("Hurry up.", "42"))
    subject = replace(sample("x"), turns=(told, *sample("x").turns[1:]))
    (pair,) = preference_pairs([stored(0, 1.0, subject=subject), stored(1, 0.0)])
    assert [message["role"] for message in pair["chosen"]] == ["assistant", "user", "tool", "assistant"]


def test_groups_without_a_difference_and_members_of_another_prompt_give_none() -> None:
    assert not preference_pairs([stored(0, 1.0), stored(1, 1.0), stored(0, None, group="h")])
    guided = stored(1, 0.0, subject=sample("x", (*PROMPT, Message("user", "A hint."))))
    assert not preference_pairs([stored(0, 1.0), guided])
    assert not preference_pairs([stored(0, 1.0), stored(0, 0.0, group="h")]), "of different prompts"
    close = [stored(0, 1.0), stored(1, 0.75)]
    assert not preference_pairs(close, min_gap=0.25) and preference_pairs(close, min_gap=0.2)


def test_validation_is_no_data_unless_it_is_asked_for() -> None:
    played = [replace(stored(session, float(session)), split="val") for session in (0, 1)]
    assert preference_pairs(played) == []
    assert len(preference_pairs(played, splits=("val",))) == 1


async def test_what_the_policy_wrote_counts_and_what_it_was_told_does_not(tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    (pair,) = preference_pairs([stored(0, 1.0), stored(1, 0.0)], tools_of=lambda sample: [DOUBLE])
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
        ([], "begin with a message of the assistant"),
        ([{"role": "tool", "content": "42"}], "begin with a message of the assistant"),
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
