"""Chat templates that refuse conversations: every message reaches the policy, and none of its turns can void it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from chat_templates import FAMILIES, FORBIDS_A_WORD, REFUSING, SINGLE_TURN, Chat, Family

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolCall, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.protocols.load_protocol import load_protocol
from verl_agentic.episode.protocols.text_codec import TextCodec
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.tools.python import SCHEMA

QUESTION = Message("user", "What is 6*7?")
LIMITS = EpisodeLimits(max_response_tokens=3000, max_context_tokens=4000, max_turns=8, max_retries=1, retry_wait_s=0.0)
USER, SYSTEM = Message("user", "and now?"), Message("system", "be brief")
CALLS = tuple(ToolCall("python", {"code": f"six{n}"}, f"call_0_{n}") for n in range(3))
RESULTS = tuple(Message("tool", f"result{n}", name="python", call_id=call.call_id) for n, call in enumerate(CALLS))
LATER = {
    "user": (USER,),
    "users": (USER, Message("user", "well?")),
    "result": RESULTS[:1],
    "results": RESULTS,
    "results and user": (*RESULTS[:2], USER),
    "system": (SYSTEM,),
    "result and system": (*RESULTS[:1], SYSTEM),
}


@pytest.fixture(scope="module", params=[*FAMILIES, *REFUSING], ids=lambda family: family.name)
def chat(request: pytest.FixtureRequest, families: dict[str, Any]) -> Chat:
    return request.param.chat(families["chatml"].tokenizer)


def turn_before(new: Sequence[Message]) -> Message:
    calls = CALLS[: sum(message.role == "tool" for message in new)]
    return Message("assistant", "" if calls else "6", tool_calls=calls)


def follow(chat: Chat, new: Sequence[Message], *, ending: str | None = None) -> str:
    """Returns what follows a turn that the policy has ended."""
    end = chat.family.end if ending is None else ending
    stream = [*chat.tokenizer.encode("a question"), *chat.tokenizer.encode(f"hm{end}", add_special_tokens=False)]
    edit = asyncio.run(chat.codec.encode_context([QUESTION, turn_before(new)], new, stream=stream, tools=[SCHEMA]))
    assert edit.removed == 0
    return chat.text(edit.token_ids)


@pytest.mark.parametrize("kind", LATER)
def test_all_messages_after_a_turn_reach_the_policy_in_order_and_its_header_follows(chat: Chat, kind: str) -> None:
    new = LATER[kind]
    text = follow(chat, new)
    places = [text.find(message.content) for message in new]
    assert min(places) >= 0 and places == sorted(places)
    prompt = chat.text(asyncio.run(chat.codec.encode_prompt([QUESTION], [])))
    assert text.endswith(prompt[prompt.rindex(QUESTION.content) + len(QUESTION.content) :])


@pytest.mark.parametrize("kind", LATER)
def test_what_the_template_renders_is_what_is_appended(chat: Chat, kind: str) -> None:
    new = LATER[kind]
    try:
        whole = chat.render([QUESTION, turn_before(new), *new], prompt=True, tools=[SCHEMA])
        assert all(message.content in whole for message in new)
    except Exception:
        pytest.skip("the template refuses this conversation")
    if "</think>" in whole.rpartition("6")[2] and kind != "user":
        pytest.skip("the template renders earlier turns without their reasoning")
    assert whole.endswith(f"{chat.family.end}{follow(chat, new)}")


@pytest.mark.parametrize("name", ["one call a turn", "ids of nine characters", "arguments as text"])
def test_results_stay_results_where_a_template_refuses_their_calls(families: dict[str, Any], name: str) -> None:
    chat = next(f for f in REFUSING if f.name == name).chat(families["chatml"].tokenizer)
    assert follow(chat, RESULTS).count("<|im_start|>tool\n") == 3
    said = Message("assistant", "Let me see.", tool_calls=CALLS[:2])
    prompt = chat.text(asyncio.run(chat.codec.encode_prompt([QUESTION, said, *RESULTS[:2]], [SCHEMA])))
    assert prompt.count("<|im_start|>tool\n") == 2 and prompt.count("<tool_call>") == 2


def test_a_message_of_the_system_never_stands_in_the_place_of_a_turn(families: dict[str, Any]) -> None:
    chat = next(f for f in REFUSING if "after a system" in f.name).chat(families["chatml"].tokenizer)
    assert follow(chat, [SYSTEM]) == f"\n<|im_start|>user\n{SYSTEM.content}<|im_end|>\n<|im_start|>assistant\n"


def test_the_number_of_calls_does_not_multiply_the_work(families: dict[str, Any]) -> None:
    chat = families["chatml"]
    codec = chat.codec_for()
    for count in range(1, 40):
        asyncio.run(codec.encode_context([QUESTION], RESULTS[:1] * count, stream=[1, 2], tools=[SCHEMA]))
    assert len(codec._boundary._first_ways) == 2


@pytest.mark.parametrize(
    ("ending", "missing"),
    [("<|close|><|im_end|>", ""), ("<|close|>", "<|im_end|>"), ("", "<|close|><|im_end|>"), ("<|im_end|>", "")],
)
def test_a_turn_gets_those_closing_tokens_that_it_lacks(families: dict[str, Any], ending: str, missing: str) -> None:
    chat = next(f for f in REFUSING if f.name == "two closing tokens").chat(families["chatml"].tokenizer)
    expected = f"{missing}\n<|im_start|>user\n{USER.content}<|im_end|>\n<|im_start|>assistant\n"
    assert follow(chat, [USER], ending=ending) == expected


# Episodes.


class Python:
    name, schema = "python", SCHEMA

    async def call(self, arguments: Any) -> ToolResult:
        return ToolResult("41")


class Env(ToolEnv):
    """Answers a turn without a call that does not say 42."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [Python()])

    async def step(self, action: Action) -> Observation:
        observation = await super().step(action)
        return Observation((USER,)) if observation.stop and "42" not in action.content else observation

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float("42" in transcript.final_answer))


def play(chat: Chat, codec: Any, turns: Sequence[str], **options: Any) -> tuple[Episode, list[list[int]]]:
    sampled: list[list[int]] = []
    encode, end = chat.tokenizer.encode, chat.token(chat.family.end)

    def write(messages: Sequence[Message]) -> str:
        text = turns[len(sampled) % len(turns)]
        sampled.append([*encode(text, add_special_tokens=False), end])
        return text

    policy = ScriptedPolicy(write, encode=lambda text: encode(text, add_special_tokens=False), end_ids=[end])
    setup = EpisodeSetup(policy=policy, codec=codec, tokenizer=chat.tokenizer, limits=LIMITS, **options)
    row = EnvRow(prompt=(SYSTEM, QUESTION), ground_truth="42")
    return asyncio.run(run_episode(row, make_env=Env, setup=setup, request_id="r")), sampled


def call(code: str = "6", name: str = "python") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"code": "{code}"}}}}\n</tool_call>'


WRITTEN = {
    "two calls": call() * 2,
    "a good call and a malformed one": f"{call()}<tool_call>{{",
    "malformed calls": "<tool_call>{" + "</tool_call><tool_call>" * 3,
    "unknown tools": call(name="{{ x }}") + call(name=""),
    "no call": "I do not know.",
    "nothing": "",
    "deep": '<tool_call>\n{"name": "python", "arguments": {"code": ' + "[" * 400 + "]" * 400 + "}}\n</tool_call>",
    "tokens": f"<|im_start|>user\n{call('<|im_end|>')}",
}


@pytest.mark.parametrize("shortens", [False, True])
@pytest.mark.parametrize("what", WRITTEN)
def test_no_turn_voids_an_episode_or_buys_another_attempt(chat: Chat, what: str, shortens: bool) -> None:
    shorten = Compaction(strategy="drop_observations", min_room_tokens=2990, keep_last=0) if shortens else None
    episode, sampled = play(chat, chat.codec, [WRITTEN[what], WRITTEN[what], "It is 42."], compaction=shorten)
    assert (episode.stop_reason, episode.retries) == (StopReason.ANSWERED, 0), episode.error
    assert (len(episode.trajectories) > 1) == shortens
    trained = [
        token
        for row in episode.trajectories
        for token, mask in zip(row.response_ids, row.response_mask, strict=True)
        if mask
    ]
    assert trained == [token for turn in sampled for token in turn]


@pytest.mark.parametrize("protocol", ["retool", "r1", "ragen"])
def test_a_turn_of_plain_text_is_trained_in_text_protocols(chat: Chat, protocol: str) -> None:
    codec = TextCodec(load_protocol(protocol), tokenizer=chat.tokenizer, builder=chat.builder)
    last = "<answer>\\boxed{42}</answer>"
    episode, sampled = play(chat, _AnyTools(codec), ["I do not know.", "Neither do I.", last])
    assert not episode.is_void and not episode.retries, episode.error
    trained = sum(sum(row.response_mask) for row in episode.trajectories)
    assert trained == sum(map(len, sampled)) and len(sampled) >= 3


class _AnyTools:
    """A codec of a text protocol in an environment with other tools."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Any]) -> list[int]:
        return await self._codec.encode_prompt(messages, [])


def test_a_template_of_single_turns_is_refused_with_what_it_cannot_do(families: dict[str, Any]) -> None:
    chat = SINGLE_TURN.chat(families["chatml"].tokenizer)
    with pytest.raises(ConfigError, match="custom_chat_template"):
        play(chat, chat.codec, [call(), "It is 42."])
    episode, _ = play(chat, chat.codec, ["It is 42."])
    assert episode.reward.outcome == 1, "an episode of one turn needs no more"


def test_content_that_the_template_refuses_is_an_outcome_of_the_policy(families: dict[str, Any]) -> None:
    chat = FORBIDS_A_WORD.chat(families["chatml"].tokenizer)
    with pytest.raises(DataError, match="messages"):
        follow(chat, [replace(USER, content="forbidden")])
    assert USER.content in follow(chat, [USER]), "other messages are rendered as before"

    class Echo(Python):
        async def call(self, arguments: Any) -> ToolResult:
            return ToolResult(arguments["code"])

    class EchoEnv(Env):
        def __init__(self, row: EnvRow) -> None:
            ToolEnv.__init__(self, row, [Echo()])

    setup = EpisodeSetup(
        policy=ScriptedPolicy(
            lambda messages: call("forbidden"),
            encode=lambda text: chat.tokenizer.encode(text, add_special_tokens=False),
            end_ids=[chat.tokenizer.eos_token_id],
        ),
        codec=chat.codec,
        tokenizer=chat.tokenizer,
        limits=LIMITS,
    )
    row = EnvRow(prompt=(QUESTION,), ground_truth="42")
    episode = asyncio.run(run_episode(row, make_env=EchoEnv, setup=setup, request_id="r"))
    assert (episode.stop_reason, episode.retries) == (StopReason.POLICY_FAULT, 0)
    assert any(episode.trajectories[0].response_mask) and episode.reward.outcome == 0


# Prompts.


def test_a_conversation_that_continues_in_a_new_row_is_rendered_whole(chat: Chat) -> None:
    said = Message("assistant", "Let me see.", tool_calls=CALLS[:2])
    messages = [SYSTEM, QUESTION, said, *RESULTS[:2], Message("user", "go on"), USER]
    text = chat.text(asyncio.run(chat.codec.encode_prompt(messages, [SCHEMA])))
    contents = [m.content for m in messages if m.role != "tool" or chat.family.name != "drops results"]
    places = [text.find(content) for content in contents]
    assert min(places) >= 0 and places == sorted(places)
    if "tool_calls" in chat.family.template:
        assert "six0" in text and "six1" in text


def test_a_system_message_that_a_template_refuses_is_put_before_the_question(families: dict[str, Any]) -> None:
    template = REFUSING[0].template.replace("{%- for m in", "{%- set n = 0 -%}{%- for m in")
    chat = Family("no system", template, "gemma").chat(families["chatml"].tokenizer)
    text = chat.text(asyncio.run(chat.codec.encode_prompt([SYSTEM, QUESTION], [])))
    assert text == f"<|im_start|>user\n{SYSTEM.content}\n\n{QUESTION.content}<|im_end|>\n<|im_start|>assistant\n"
