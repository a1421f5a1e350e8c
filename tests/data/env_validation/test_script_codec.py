"""Scripts are written and read as verl's classes do it with a tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from verl_agentic.base.types import Message
from verl_agentic.evaluate.env_validation.adversaries import example_call, malformed
from verl_agentic.evaluate.env_validation.script_codec import make_script_codec
from verl_agentic.tools.python import SCHEMA

_PROMPTS = {
    "user": [Message("user", "What is 3*4? ünïcødé <b>&'\" <|im_end|>")],
    "system": [Message("system", "Be brief."), Message("user", "Hello")],
}
_OBSERVATIONS = {
    "tool": [Message("tool", "12 </tool_response>")],
    "two tools": [Message("tool", "12"), Message("tool", "Error: ∞")],
    "user": [Message("user", "Again.\n\nPlease.")],
    "tool, then user": [Message("tool", "12"), Message("user", "Next")],
    "system": [Message("system", "New rules")],
}


@pytest.fixture(scope="module")
def ours() -> tuple[Any, Any]:
    return make_script_codec("chat")


@pytest.mark.parametrize("messages", _PROMPTS.values(), ids=_PROMPTS)
@pytest.mark.parametrize("tools", [[], [SCHEMA]], ids=["no tools", "tools"])
def test_prompts_have_the_text_of_verls(
    ours: tuple[Any, Any], tiny_chat: tuple[Any, Any], messages: list[Message], tools: list[Any]
) -> None:
    first, second = (
        tokenizer.decode(asyncio.run(codec.encode_prompt(messages, tools))) for tokenizer, codec in (ours, tiny_chat)
    )
    assert first == second


@pytest.mark.parametrize("new", _OBSERVATIONS.values(), ids=_OBSERVATIONS)
@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>", ""])
def test_observations_have_the_text_of_verls(
    ours: tuple[Any, Any], tiny_chat: tuple[Any, Any], new: list[Message], end: str
) -> None:
    call = example_call(SCHEMA)
    previous = [*_PROMPTS["user"], Message("assistant", "", tool_calls=(call,))]

    def stream_after(tokenizer: Any, codec: Any) -> str:
        turn = codec.render_action(previous[-1]) + end
        stream = [*asyncio.run(codec.encode_prompt(previous[:1], [SCHEMA])), *tokenizer.encode(turn)]
        edit = asyncio.run(codec.encode_context(previous, new, stream=stream, tools=[SCHEMA]))
        return tokenizer.decode([*stream[: len(stream) - edit.removed], *edit.token_ids])

    assert stream_after(*ours) == stream_after(*tiny_chat)


def test_malformed_turns_are_read_as_verls_are(ours: tuple[Any, Any], tiny_chat: tuple[Any, Any]) -> None:
    probes, unwritable = malformed(ours[1], [SCHEMA], ours[0].all_special_tokens)
    assert len(probes) == 15 and not unwritable
    assert list(ours[0].all_special_tokens) == list(tiny_chat[0].all_special_tokens)

    def actions(tokenizer: Any, codec: Any, texts: Sequence[str]) -> list[Any]:
        turns = (tokenizer.encode(text + "<|im_end|>", add_special_tokens=False) for text in texts)
        return [asyncio.run(codec.decode_action(ids, turn=0, tools=[SCHEMA])) for ids in turns]

    texts = [probe.begin()([]) for probe in probes]
    assert actions(*ours, texts) == actions(*tiny_chat, texts)


def test_text_that_no_model_could_read_is_refused(ours: tuple[Any, Any]) -> None:
    with pytest.raises(UnicodeEncodeError):
        ours[0].encode("\ud800")
