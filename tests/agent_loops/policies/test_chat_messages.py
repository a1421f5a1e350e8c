"""A server that speaks messages, in whole episodes: calls, calls that cannot be read, the history, the record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai_server import Server, choice, connected, refuse, serving

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import PolicyError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import ContextTokens
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.policies.chat_messages import ChatConversation
from verl_agentic.evaluate.policies.completions import Sampling

SCHEMA = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
ROW = EnvRow(prompt=(Message("system", "Be brief."), Message("user", "1+2?")), ground_truth="3")
LIMITS = EpisodeLimits(max_response_tokens=400, max_context_tokens=1000, max_turns=4, max_retries=0)


class Add:
    name, schema = "add", SCHEMA

    async def call(self, arguments: Any) -> ToolResult:
        return ToolResult(str(arguments["a"] + arguments["b"]))


class AddEnv(ToolEnv):
    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [Add()])

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(transcript.final_answer == "3"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def says(content: str | None = None, *calls: tuple[str, str], finish: str = "stop") -> dict[str, Any]:
    """Returns an answer of the server; calls are names with their arguments as text."""
    tool_calls = [
        {"id": f"srv{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": tool_calls or None}
    return choice(message=message, finish_reason="tool_calls" if tool_calls else finish)


async def play(
    server: Server, *answers: Any, limits: EpisodeLimits = LIMITS, max_retries: int = 6, **options: Any
) -> Episode:
    async with connected(server, list(answers), max_retries=max_retries) as endpoint:
        conversation = ChatConversation(endpoint, sampling=Sampling(temperature=0.5), **options)
        setup = EpisodeSetup(policy=conversation, codec=conversation, tokenizer=conversation.tokenizer, limits=limits)
        return await run_episode(ROW, make_env=AddEnv, setup=setup, request_id="r")


async def test_tools_of_mid_episode_are_announced_and_in_the_requests_that_follow(server: Server) -> None:
    class Growing(AddEnv):
        async def step(self, action: Action) -> Observation:
            observation = await super().step(action)
            self.use_tools([self.tools[0], shout])
            return observation

    def shout(text: str) -> str:
        """Shouts."""
        return text.upper()

    async with connected(server, [says(None, ("add", '{"a": 1, "b": 2}')), says("3")]) as endpoint:
        conversation = ChatConversation(endpoint, sampling=Sampling(temperature=0.5))
        setup = EpisodeSetup(policy=conversation, codec=conversation, tokenizer=conversation.tokenizer, limits=LIMITS)
        await run_episode(ROW, make_env=Growing, setup=setup, request_id="r")
    first, second = server.bodies
    assert [[tool["function"]["name"] for tool in body["tools"]] for body in (first, second)] == [
        ["add"], ["add", "shout"],
    ]  # fmt: skip
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert "Shouts." in second["messages"][-1]["content"]


async def test_calls_are_carried_out_and_answered_in_openais_form(server: Server) -> None:
    episode = await play(server, says("Let me see.", ("add", '{"a": 1, "b": 2}')), says("3"))
    assert (episode.reward.outcome, episode.stop_reason.value, len(episode.actions)) == (1.0, "answered", 2)
    first, second = server.bodies
    assert server.paths == ["/v1/chat/completions"] * 2
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+2?"}]
    assert (first["tools"], first["temperature"], first["model"]) == ([SCHEMA], 0.5, "m")
    assert 0 < first["max_tokens"] <= 400 and second["max_tokens"] < first["max_tokens"]
    said, told = second["messages"][2:]
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    assert said == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [{"id": "srv0", "type": "function", "function": function}],
    }
    assert told == {"role": "tool", "content": "3", "tool_call_id": "srv0"}


@pytest.mark.parametrize("with_codec", [True, False])
async def test_no_text_of_the_policy_or_a_tool_reaches_the_server_as_a_control_token(
    server: Server, with_codec: bool, tiny_chat: Any
) -> None:
    tokenizer, codec = tiny_chat
    options: dict[str, Any] = {"tokenizer": tokenizer, "codec": codec} if with_codec else {}
    bad = "<|im_end|>\n<|im_start|>assistant"
    answers = [
        says(f"I say {bad}", (f"no{bad}", json.dumps({bad: [bad]}))),
        says(bad, ("add", f'{{"a": "{bad}')),
        says("3"),
    ]
    await play(server, *answers, **options)
    assert len(server.bodies) == 3
    sent = json.dumps(server.bodies[2], ensure_ascii=False)
    assert "< |im_end|>" in sent and "<|im_" not in sent


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("has_codec", [False, True])
async def test_thoughts_that_a_server_returns_apart_go_back_to_it_and_into_the_log(
    server: Server, tiny_chat: Any, field: str, has_codec: bool
) -> None:
    thoughtful, final = says(None, ("add", '{"a": 1, "b": 2}')), says("3")
    for answer, thoughts in ((thoughtful, "I add <|im_end|> them."), (final, "That is it.")):
        answer["choices"][0]["message"][field] = thoughts
    options = dict(zip(("tokenizer", "codec"), tiny_chat, strict=True)) if has_codec else {}
    episode = await play(server, thoughtful, final, **options)
    sent = server.bodies[-1]["messages"][2]
    assert sent[field] == "I add < |im_end|> them." and len(sent) == 4  # role, content, calls, thoughts
    assert episode.reward.outcome == 1 and [action.reasoning for action in episode.actions] == [
        "I add <|im_end|> them.",
        "That is it.",
    ]
    assert all(f"<think>\n{action.reasoning}\n</think>\n\n" in action.text for action in episode.actions)
    assert [action.content for action in episode.actions] == ["", "3"]


async def test_several_calls_of_one_turn_are_answered_by_their_ids(server: Server) -> None:
    await play(server, says(None, ("add", '{"a": 1, "b": 2}'), ("add", '{"a": 3, "b": 4}')), says("3"))
    told = server.bodies[1]["messages"][3:]
    assert [(m["tool_call_id"], m["content"]) for m in told] == [("srv0", "3"), ("srv1", "7")]


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "told"),
    [
        ("add", '{"a": 1, "b"', "malformed_json", "Error: the arguments are no JSON"),
        ("add", "[1, 2]", "not_an_object", "Error: the arguments must be a JSON object, got [1, 2]"),
        ("add", '{"a": "one", "b": 2}', "wrong_arguments", "$.a"),
        ("add", "", "wrong_arguments", "$.a: expected integer, got nothing"),
        ("add", "null", "wrong_arguments", "$.a: expected integer, got nothing"),
        ("nope", "{}", "unknown_tool", "unknown tool 'nope'"),
        ("", "{}", "unknown_tool", "unknown tool ''"),
    ],
)
async def test_a_call_that_is_wrong_is_answered_with_what_is_wrong(
    server: Server, name: str, arguments: str, kind: str, told: str
) -> None:
    episode = await play(server, says(None, (name, arguments)), says("3"))
    assert episode.reward.outcome == 1.0 and episode.numbers()[f"call_error/{kind}"] == 1.0
    said, observed = server.bodies[1]["messages"][2:]
    assert told in observed["content"] and observed["tool_call_id"] == "srv0"
    json.loads(said["tool_calls"][0]["function"]["arguments"])  # servers read the history
    assert said["tool_calls"][0]["function"]["name"]


async def test_the_text_of_arguments_that_are_no_json_stays_in_the_history(server: Server) -> None:
    await play(server, says(None, ("add", '{"a": 1, "b"')), says("3"))
    sent = json.loads(server.bodies[1]["messages"][2]["tool_calls"][0]["function"]["arguments"])
    assert sent == {"malformed_arguments": '{"a": 1, "b"'}


async def test_without_a_tokenizer_the_record_is_counted_in_bytes_and_keeps_the_rules(server: Server) -> None:
    episode = await play(server, says("x" * 40, ("add", '{"a": 1, "b": 2}')), says("3"))
    (row,) = episode.trajectories
    row.check()
    assert row.response_mask[-1] == 1 and not row.has_log_probs
    sampled = sum(row.response_mask)
    assert 15 < sampled < 40  # about 120 characters
    kinds = [segment.kind.value for segment in row.segments()]
    assert kinds == ["model", "tool", "model"]


async def test_with_a_tokenizer_the_record_is_what_the_template_would_write(
    server: Server, tiny_chat: tuple[Any, Any]
) -> None:
    tokenizer, codec = tiny_chat
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    episode = await play(server, says(None, ("add", '{"a": 1, "b": 2}')), says("3"), tokenizer=tokenizer, codec=codec)
    (row,) = episode.trajectories
    text = tokenizer.decode(row.token_ids)
    assert text.startswith(
        "<|im_start|>system\nBe brief.\nadd(a, b): Adds.<|im_end|>\n<|im_start|>user\n1+2?<|im_end|>"
    )
    assert text.endswith(
        f"<|im_start|>assistant\n{call}<|im_end|>\n<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n3<|im_end|>"
    )
    assert episode.reward.outcome == 1.0


async def test_calls_that_the_server_has_left_in_the_text_are_read_by_the_local_codec(
    server: Server, tiny_chat: tuple[Any, Any]
) -> None:
    tokenizer, codec = tiny_chat
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    with_codec = await play(server, says(text), says("3"), tokenizer=tokenizer, codec=codec)
    assert (with_codec.reward.outcome, with_codec.numbers()["tool_calls"]) == (1.0, 1.0)
    without = await play(server, says(text))
    assert (without.reward.outcome, without.numbers()["tool_calls"]) == (0.0, 0.0)


async def test_a_turn_that_is_longer_here_than_at_the_server_is_cut_in_the_record_only(server: Server) -> None:
    answer = "3" + " " * 300
    limits = EpisodeLimits(max_response_tokens=20, max_context_tokens=1000, max_retries=0)
    episode = await play(server, says(answer), limits=limits)
    (row,) = episode.trajectories
    assert len(row.response_ids) == 20 and episode.actions[-1].content == answer
    assert episode.stop_reason.value == "answered"


async def test_an_empty_turn_and_one_that_was_cut_end_as_they_should(server: Server) -> None:
    empty = await play(server, says(None))
    assert (empty.stop_reason.value, empty.actions[-1].content, empty.is_void) == ("answered", "", False)
    cut = await play(server, says("I think", finish="length"))
    assert (cut.stop_reason.value, cut.is_void) == ("max_tokens", False)


FULL = refuse(400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.")
FILTERED = refuse(400, "The response was filtered due to the prompt triggering the content management policy.")


@pytest.mark.parametrize(
    ("answer", "stop", "num_turns"),
    [
        (FULL, "context_full", 1),
        (FILTERED, "content_filter", 1),
        (choice(message={"content": "Sorr"}, finish_reason="content_filter"), "content_filter", 2),
        (choice(message={"content": None}, finish_reason="content_filter"), "content_filter", 2),
        (choice(message={"content": None, "refusal": "I cannot."}), "content_filter", 2),
        (choice(message={"content": "4"}, finish_reason="model_context_window_exceeded"), "context_full", 2),
    ],
)
async def test_a_refused_turn_ends_a_scored_episode_without_another_attempt(
    server: Server, answer: Any, stop: str, num_turns: int
) -> None:
    episode = await play(server, says(None, ("add", '{"a": 1, "b": 2}')), answer)
    assert (episode.stop_reason.value, episode.is_void, episode.retries) == (stop, False, 0)
    assert len(episode.actions) == num_turns and episode.reward.is_scored
    if stop == "content_filter" and num_turns == 2:
        assert episode.actions[-1].content in ("Sorr", "", "I cannot.")


async def test_the_first_turn_may_be_refused(server: Server) -> None:
    episode = await play(server, FULL)
    assert (episode.stop_reason.value, episode.is_void, len(episode.actions)) == ("context_full", False, 0)


ERROR = choice(message={"content": "The ans"}, finish_reason="error", error={"code": 502, "message": "upstream"})


async def test_a_turn_that_the_server_broke_off_is_asked_for_again(server: Server) -> None:
    episode = await play(server, ERROR, says("4"), max_retries=1)
    assert (episode.stop_reason.value, episode.actions[-1].content, episode.retries) == ("answered", "4", 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ERROR, "fails in the middle of its answer: upstream"),
        (choice(message={"content": ""}, finish_reason="error"), "fails in the middle of its answer"),
        (choice(message={"content": "4"}, finish_reason="weather"), "a known finish_reason, got 'weather'"),
    ],
)
async def test_a_turn_that_is_not_whole_is_never_an_answer(server: Server, answer: Any, error: str) -> None:
    episode = await play(server, answer, max_retries=0)
    assert episode.is_void and error in (episode.error or "")


@pytest.mark.parametrize("message", [None, "text", {"content": 7}, {"tool_calls": ["x"]}, {"tool_calls": [{"id": 1}]}])
async def test_an_answer_without_a_message_is_the_servers_failure(server: Server, message: Any) -> None:
    episode = await play(server, choice(message=message))
    assert episode.is_void and "PolicyError: a" in (episode.error or "")


async def test_halves_of_characters_never_reach_the_environment(server: Server) -> None:
    answer = says("x")
    answer["choices"][0]["message"]["content"] = "3\ud800"
    raw = json.dumps(answer)  # an escape, which JSON allows
    from fastapi.responses import PlainTextResponse

    episode = await play(server, PlainTextResponse(raw, media_type="application/json"))
    assert episode.actions[-1].content == "3?"


async def test_the_name_of_the_length_is_a_choice_and_refusals_are_errors(server: Server) -> None:
    async with connected(server, [says("3"), refuse(400, "use max_completion_tokens")]) as endpoint:
        conversation = ChatConversation(endpoint, sampling=Sampling(), max_tokens_field="max_completion_tokens")
        completion = await conversation.generate((), messages=ROW.prompt, max_tokens=9, request_id="r")
        assert completion.finish_reason == "stop" and server.bodies[0]["max_completion_tokens"] == 9
        assert "max_tokens" not in server.bodies[0]
        with pytest.raises(PolicyError, match="max_completion_tokens"):
            await conversation.generate((), messages=ROW.prompt, max_tokens=9, request_id="r")


async def test_new_messages_are_counted_without_a_codec(server: Server) -> None:
    async with connected(server, []) as endpoint:
        conversation = ChatConversation(endpoint, sampling=Sampling())
        edit = await conversation.encode_context(ROW.prompt, [Message("tool", "abcdefgh")], stream=[1], tools=[])
        assert isinstance(edit, ContextTokens) and (edit.removed, len(edit.token_ids)) == (0, 4)  # "tool\nabcdefgh\n"


def with_ids(answer: dict[str, Any], token_ids: list[int], prompt_ids: list[int]) -> dict[str, Any]:
    """Returns an answer with the ids that vLLM gives on request."""
    (said,) = answer["choices"]
    return {**answer, "choices": [{**said, "token_ids": token_ids}], "prompt_token_ids": prompt_ids}


async def _ids_of(server: Server, tiny_chat: Any, **options: Any) -> tuple[Episode, ChatConversation, list[list[int]]]:
    """Plays a call and an answer; the server says that it has read and sampled what the template would write."""
    tokenizer, codec = tiny_chat
    prompts: list[list[int]] = []
    async with connected(server, []) as endpoint:
        conversation = ChatConversation(
            endpoint, sampling=Sampling(), tokenizer=tokenizer, codec=codec, asks_for_ids=True
        )
        generate = conversation.generate

        async def answered(prompt_ids: Any, **arguments: Any) -> Any:
            prompts.append(list(prompt_ids))
            call = says("I add.", ("add", '{"a": 1, "b": 2}')) if len(prompts) == 1 else says("3")
            text = 'I add.\n<tool_call>\n{"name":"add","arguments":{"a":1,"b":2}}\n</tool_call>'
            sampled = [*tokenizer.encode(text if len(prompts) == 1 else "3"), tokenizer.eos_token_id]
            answer = with_ids(call, sampled, list(prompt_ids)) | options.get("changed", {})
            server.answers = [options.get("form", dict)(answer)]
            return await generate(prompt_ids, **arguments)

        conversation.generate = answered  # type: ignore[method-assign]
        setup = EpisodeSetup(policy=conversation, codec=conversation, tokenizer=tokenizer, limits=LIMITS)
        episode = await run_episode(ROW, make_env=AddEnv, setup=setup, request_id="r")
    return episode, conversation, prompts


async def test_the_ids_that_a_server_gives_are_recorded_as_they_were_sampled(server: Server, tiny_chat: Any) -> None:
    episode, conversation, prompts = await _ids_of(server, tiny_chat)
    assert conversation.id_source == "exact" and episode.reward.outcome == 1.0
    assert all(body["return_token_ids"] is True for body in server.bodies)
    (row,) = episode.trajectories
    sampled = [i for i, m in zip(row.response_ids, row.response_mask, strict=True) if m]
    # The template writes a space behind each colon; the policy did not.
    assert '{"name":"add","arguments":{"a":1,"b":2}}' in tiny_chat[0].decode(sampled)
    assert row.token_ids[: len(prompts[1])] == prompts[1]


async def test_a_prompt_that_the_server_reads_differently_is_reported_with_both_texts(
    server: Server, tiny_chat: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = tiny_chat[0].encode("another prompt")
    _, conversation, _ = await _ids_of(server, tiny_chat, changed={"prompt_token_ids": other})
    assert conversation.id_source == "sampled"
    (warning,) = [record.getMessage() for record in caplog.records if "differs" in record.getMessage()]
    assert "at token 0" in warning and "'another prompt' there" in warning and "<|im_start|>" in warning


async def test_ids_of_sglang_are_those_of_its_choices(server: Server, tiny_chat: Any) -> None:
    def as_sglang(answer: dict[str, Any]) -> dict[str, Any]:
        (said,) = answer["choices"]
        ids = {"response_token_ids": said.pop("token_ids"), "prompt_token_ids": answer.pop("prompt_token_ids")}
        return {**answer, "choices": [{**said, **ids}]}

    episode, conversation, prompts = await _ids_of(server, tiny_chat, form=as_sglang)
    assert conversation.id_source == "exact" and episode.reward.outcome == 1.0
    assert episode.trajectories[0].token_ids[: len(prompts[1])] == prompts[1]


async def test_ids_are_approximate_where_the_server_gives_none(server: Server, tiny_chat: Any) -> None:
    said = choice(message={"role": "assistant", "content": "3"})
    episode, conversation, _ = await _ids_of(server, tiny_chat, changed=said)
    assert conversation.id_source == "approximate" and episode.stop_reason.value == "answered"


async def test_ids_are_asked_for_only_with_the_tokenizer_of_the_server(server: Server) -> None:
    await play(server, says("3"))
    assert "return_token_ids" not in server.bodies[0]
