"""Turns that scripts write: they continue what the header of a turn has begun, and solve their tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from chat_templates import FAMILIES, STRIPS_THINKING, Chat, Family

from verl_agentic.base.text.tags import are_flat, marks
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.calls.tool_formats import FORMATS
from verl_agentic.episode.codec.codec import render_next_action
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.protocols.load_protocol import load_protocol
from verl_agentic.episode.protocols.text_codec import TextCodec
from verl_agentic.episode.run_episode import run_episode

LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=40_000, max_turns=64, max_retries=0)
THINKS = Family("opens reasoning", STRIPS_THINKING, "qwen3")
CLOSES = Family(
    "opens and closes reasoning", STRIPS_THINKING.replace("<think>\\n", "<think>\\n\\n</think>\\n\\n"), "qwen3"
)
CALL = {
    "chat": ToolCall("python", {"code": "print(1)"}),
    "retool": ToolCall("python", {"code": "print(1)"}),
    "search_r1": ToolCall("search", {"query": "one"}),
    "ragen": ToolCall("act", {"action": "Up"}),
    "json_action": ToolCall("act", {"action": "Up"}),
    "r2e": ToolCall("edit", {"path": "a.py"}),
    "toolrl": ToolCall("edit", {"path": "a.py"}),
    "mini_swe": ToolCall("bash", {"command": "ls"}),
}


@pytest.fixture(scope="module", params=[*FAMILIES, CLOSES], ids=lambda family: family.name)
def chat(request: pytest.FixtureRequest, families: dict[str, Any]) -> Chat:
    return request.param.chat(families["chatml"].tokenizer)


def codec_of(chat: Chat, protocol: str) -> Any:
    if protocol == "chat":
        return chat.codec
    return TextCodec(load_protocol(protocol), tokenizer=chat.tokenizer, builder=chat.builder)


def decode(chat: Chat, codec: Any, text: str, *, turn: int = 0) -> Any:
    ids = [*chat.tokenizer.encode(text, add_special_tokens=False), chat.token(chat.family.end)]
    return asyncio.run(codec.decode_action(ids, turn=turn, tools=[]))


def header(chat: Chat, codec: Any) -> str:
    prompt = chat.text(asyncio.run(codec.encode_prompt([Message("user", "QUESTION")], [])))
    return prompt.rpartition("<|im_start|>")[2] if "<|im_start|>" in prompt else prompt.rpartition("|>")[2]


@pytest.mark.parametrize("said", ["", "I try it."], ids=["silent", "with text"])
@pytest.mark.parametrize("reasoning", ["", "Hm, one."], ids=["no thoughts", "thoughts"])
@pytest.mark.parametrize("protocol", CALL)
def test_a_written_turn_is_read_as_it_was_meant_after_the_header_that_precedes_it(
    chat: Chat, protocol: str, reasoning: str, said: str
) -> None:
    codec, call = codec_of(chat, protocol), CALL[protocol]
    text = codec.render_action(Message("assistant", said, tool_calls=(call,), reasoning=reasoning))
    action = decode(chat, codec, text)
    assert [(c.name, dict(c.arguments), c.error) for c in action.tool_calls] == [
        (call.name, dict(call.arguments), None)
    ]
    assert are_flat(marks(header(chat, codec) + text, ["think"])), text
    assert reasoning in text or protocol == "chat"


@pytest.mark.parametrize("protocol", ["chat", "retool", "search_r1", "json_action", "toolrl"])
def test_a_written_answer_is_the_answer(chat: Chat, protocol: str) -> None:
    codec = codec_of(chat, protocol)
    text = codec.render_action(Message("assistant", r"\boxed{42}"))
    action = decode(chat, codec, text)
    assert not action.tool_calls and "42" in (action.content if action.answer is None else action.answer)
    assert are_flat(marks(header(chat, codec) + text, ["think"])), text


@pytest.mark.parametrize("protocol", ["retool", "search_r1", "ragen"])
def test_a_turn_that_goes_on_after_an_observation_in_its_text_has_no_header(
    families: dict[str, Any], protocol: str
) -> None:
    chat = THINKS.chat(families["chatml"].tokenizer)
    codec, turn = codec_of(chat, protocol), Message("assistant", "", tool_calls=(CALL[protocol],), reasoning="So.")
    before = [Message("user", "?"), turn, Message("tool", "1", name=turn.tool_calls[0].name, call_id="call_0_0")]
    text = render_next_action(codec, turn, before=before)
    assert text.startswith("So.</think>" if protocol == "ragen" else "<think>So.</think>")
    assert decode(chat, codec, text, turn=1).tool_calls[0].error is None


@pytest.mark.parametrize("text", ["I wonder.</think>\n\n", "", "<think>I wonder.</think>"])
@pytest.mark.parametrize("protocol", ["retool", "search_r1", "ragen", "json_action"])
def test_a_conversation_that_a_prompt_continues_has_whole_blocks_of_reasoning(
    families: dict[str, Any], protocol: str, text: str
) -> None:
    chat = THINKS.chat(families["chatml"].tokenizer)
    codec, call = codec_of(chat, protocol), CALL[protocol]
    silent = codec.render_action(Message("assistant", "", tool_calls=(call,)), continues=True)
    first, second = (decode(chat, codec, said).to_message() for said in (text + silent, silent))
    results = [Message("tool", f"{n}", name=call.name, call_id=f"call_{n}_0") for n in range(2)]
    begun = [first, results[0], second, results[1]]
    prompt = asyncio.run(codec.encode_prompt([Message("user", "QUESTION"), *begun], []))
    continued = chat.text(prompt).partition("QUESTION")[2]
    continued = continued[continued.index("<|im_start|>assistant") :]
    tags = marks(continued, ["think"])
    assert are_flat(tags[:-1] if protocol in ("ragen", "json_action") else tags), continued


@pytest.mark.parametrize("tool_format", FORMATS)
def test_every_format_closes_the_reasoning_that_a_header_has_opened(families: dict[str, Any], tool_format: str) -> None:
    opening = FORMATS[tool_format].reasoning[0]
    chat = Family("thinks", STRIPS_THINKING.replace("<think>\\n", opening), "x").chat(families["chatml"].tokenizer)
    codec, call = chat.codec_for(tool_format), CALL["chat"]
    for said in ("", "I try it."):
        action = decode(chat, codec, codec.render_action(Message("assistant", said, tool_calls=(call,))))
        assert [(c.name, dict(c.arguments), c.error) for c in action.tool_calls] == [
            ("python", {"code": "print(1)"}, None)
        ]
    said = codec.render_action(Message("assistant", "It is 42.", reasoning="I know."))
    assert "I know." in said and "I know." not in (decode(chat, codec, said).answer or "")


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("env_id", "protocol"),
    [("python_math", "chat"), ("python_math", "retool"), ("search_qa", "search_r1"), ("text_game", "ragen")],
)
def test_solutions_score_1_with_every_template(chat: Chat, env_id: str, protocol: str) -> None:
    package = load_env_package(env_id)
    row = package.make_rows(split="train", count=1, seed=1)[0]
    assert package.gold is not None
    setup = scripted(package.gold(row), codec=codec_of(chat, protocol), tokenizer=chat.tokenizer, limits=LIMITS)
    episode = asyncio.run(run_episode(row, make_env=package.make_env, setup=setup, request_id="r"))
    assert episode.reward.outcome == 1, (episode.stop_reason, episode.error)
    assert not any(call.error for action in episode.actions for call in action.tool_calls)
