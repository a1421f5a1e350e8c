"""A policy can never void its own episode, and nothing that it writes makes a sample that cannot be stored or sent."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import pickle
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from verl.experimental.agent_loop.tool_parser import ToolParser

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import DataError, EnvError, PolicyError, SandboxError, SearchUnavailableError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward, ToolCall, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.calls.json_values import MAX_DEPTH, MAX_SIZE, load_json, problem_of
from verl_agentic.episode.codec.calls.parsed_turn import call_with
from verl_agentic.episode.codec.calls.tool_calls import CallReader
from verl_agentic.episode.codec.calls.tool_formats import FORMATS
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.protocols.call_list_actions import CallListActions
from verl_agentic.episode.protocols.function_actions import FunctionActions
from verl_agentic.episode.protocols.json_actions import JsonActions
from verl_agentic.episode.protocols.load_protocol import known_protocols, load_protocol
from verl_agentic.episode.protocols.tag_actions import TagActions
from verl_agentic.episode.protocols.text_codec import TextCodec
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.run_episode import run_episode

ROW = EnvRow(prompt=(Message("user", "Use your tool."),), ground_truth="42")
LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=30_000, max_turns=4, max_retries=0)
TOOLS = {
    "search_r1": ("search", "query"),
    "retool": ("python", "code"),
    "json_action": ("act", "action"),
    "toolrl": ("search", "query"),
}


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Group(Exception):
    """As `asyncio.TaskGroup` raises, on any Python."""

    def __init__(self, *exceptions: Exception) -> None:
        super().__init__(f"{len(exceptions)} exceptions")
        self.exceptions = exceptions


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def deep_call(levels: int) -> int:
    return 1 + deep_call(levels + 1)


OF_ARGUMENTS: Mapping[str, Callable[[], object]] = {
    "division": lambda: 1 // int("0"),
    "digits": lambda: int("9" * 5_000),
    "key": lambda: {}["missing"],
    "type": lambda: len(5),  # type: ignore[arg-type]
    "recursion": lambda: deep_call(0),
    "surrogate": lambda: "\ud800".encode(),
    "null byte": lambda: open("a\0b"),  # noqa: SIM115
    "no file": lambda: open("/no/such/file"),  # noqa: SIM115
    "long name": lambda: open("x" * 5_000),  # noqa: SIM115
    "exit": lambda: exec("import sys; sys.exit(3)"),
    "memory": lambda: raises(MemoryError()),
    "iteration": lambda: next(iter([])),
    "assertion": lambda: raises(AssertionError("no")),
    "data": lambda: raises(DataError("not a row")),
    "slow": lambda: raises(TimeoutError()),
    "program": lambda: raises(subprocess.CalledProcessError(1, "ls")),
    "group": lambda: raises(Group(ValueError(), KeyError())),
    "mute": lambda: raises(Mute()),
    "long words": lambda: raises(ValueError("<|im_end|>" * 9_000 + "\ud800")),
    "nothing": lambda: None,
    "no text": lambda: ToolResult(5),  # type: ignore[arg-type]
    "half a character": lambda: ToolResult("\ud800"),
}
OF_INFRASTRUCTURE: Mapping[str, Callable[[], Exception]] = {
    "environment": lambda: EnvError("gone"),
    "sandbox": lambda: SandboxError("down"),
    "search": lambda: SearchUnavailableError("down"),
    "server": lambda: PolicyError("gone"),
    "connection": lambda: ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    "pipe": lambda: OSError("broken pipe"),
    "disk": lambda: OSError(errno.ENOSPC, "no space left on device"),
    "processes": lambda: BlockingIOError(errno.EAGAIN, "cannot fork"),
    "connect timeout": lambda: TimeoutError(errno.ETIMEDOUT, "timed out"),
    "client": lambda: chained(httpx.ConnectError("failed"), OSError("all attempts failed")),
    "client timeout": lambda: chained(httpx.ReadTimeout("hung"), TimeoutError()),
    "group with a connection": lambda: Group(ValueError(), ConnectionResetError()),
    "wrapped": lambda: chained(ValueError("bad answer"), SandboxError("down")),
}


def raises(error: BaseException) -> object:
    raise error


class Fragile:
    """Does what its first argument names."""

    def __init__(self, name: str = "python", argument: str = "code") -> None:
        self.name, self._argument = name, argument
        properties = {argument: {}, "n": {"type": "integer"}}
        self.schema = {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        what = str(arguments.get(self._argument))
        if what in OF_INFRASTRUCTURE:
            raise OF_INFRASTRUCTURE[what]()
        result: Any = OF_ARGUMENTS[what]() if what in OF_ARGUMENTS else ToolResult(json.dumps(arguments))
        return result


class Env(ToolEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(transcript.final_answer == "42"))


def play(chat: Any, codec: Any, turns: Sequence[str], tool: Fragile, how: Compaction | None = None) -> Episode:
    encode, end = chat.tokenizer.encode, chat.token(chat.family.end)

    def next_text(messages: Sequence[Message]) -> str:
        done = sum(message.role == "assistant" for message in messages)
        return turns[done % len(turns)]

    policy = ScriptedPolicy(next_text, encode=lambda text: encode(text, add_special_tokens=False), end_ids=[end])
    chosen = EpisodeSetup(policy=policy, codec=codec, tokenizer=chat.tokenizer, limits=LIMITS, compaction=how)
    return asyncio.run(
        run_episode(ROW, make_env=lambda row: Env(row, [tool], tool_timeout_s=5), setup=chosen, request_id="r")
    )


def assert_can_be_stored_and_sent(episode: Episode) -> None:
    sample = to_sample(episode, ROW, id="a/0").to_dict()
    assert pickle.loads(pickle.dumps(sample)) == sample
    assert json.loads(json.dumps(sample, allow_nan=False)) == json.loads(json.dumps(sample))
    json.dumps(sample, ensure_ascii=False).encode()
    msgspec.msgpack.encode(sample)
    episode.numbers()


raw_values = st.one_of(
    st.builds(lambda n: "[" * n + "]" * n, st.sampled_from([1, 90, 101, 400, 700, 990, 5_000])),
    st.builds(lambda n: '{"a":' * n + "1" + "}" * n, st.sampled_from([3, 99, 102, 300, 600, 990, 3_000])),
    st.sampled_from(
        [
            *(
                "9" * 4_299,
                "9" * 5_000,
                "-" + "1" * 30,
                str(2**63),
                str(-(2**63)),
                "1e999",
                "-1e400",
                "NaN",
                "-Infinity",
            ),
            *(
                r'"\ud800"',
                r'"\udfff\ud83d"',
                r'"\u0000"',
                '"<|im_end|>"',
                "null",
                "true",
                '""',
                "{}",
                '{"\\ud800": 1}',
            ),
            *('"' + "x" * 3_000 + '"', "[null, [1.5, {}]]", "0x" + "f" * 5_000, "(" * 300, "{1, 2}", "b'x'", "1j"),
        ]
    ),
    st.sampled_from(sorted(OF_ARGUMENTS)).map(json.dumps),
    st.text(max_size=6).map(json.dumps),
)
MARKUP = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<search>",
    "</code>",
    "<|im_end|>",
    "<function=",
    "{",
    "🙂",
)
noise = st.lists(st.one_of(st.text('a7\n{}"<>\x00\u2028é', max_size=6), st.sampled_from(MARKUP)), max_size=3).map(
    "".join
)
compactions = st.sampled_from(
    [
        None,
        Compaction(strategy="drop_observations", keep_last=0, min_room_tokens=19_990),
        Compaction(strategy="summary", min_room_tokens=19_000),
    ]
)


def written(codec: Any, format_name: str, name: str, argument: str, value: str) -> str:
    """Returns a call with raw text where the value of its argument stands."""
    if isinstance(codec, TextCodec):
        text = codec.render_action(Message("assistant", "", tool_calls=(ToolCall(name, {argument: "@"}),)))
        is_json = '"@"' in text
        return text.replace('"@"' if is_json else "@", value if is_json else value.strip('"'))
    text = FORMATS[format_name].write([(name, {argument: "@"})])
    return text.replace('"@"', value) if '"@"' in text else text.replace("@", value)


@given(
    form=st.sampled_from([*TOOLS, *sorted(FORMATS), "llama 3"]),
    values=st.lists(st.tuples(raw_values, noise, noise), min_size=1, max_size=3),
    name=st.sampled_from([*[None] * 5, "", "x" * 9_000, "nobody"]),
    how=compactions,
    repair=st.booleans(),
    check=st.booleans(),
)
def test_no_turn_and_no_arguments_void_an_episode(
    families: Mapping[str, Any], form: str, values: Any, name: str | None, how: Any, repair: bool, check: bool
) -> None:
    chat = families["llama 3" if form == "llama 3" else "chatml"]
    options: Any = {"repair": repair, "check_arguments": check}
    if form in TOOLS:
        codec: Any = TextCodec(load_protocol(form), tokenizer=chat.tokenizer, builder=chat.builder, **options)
    else:
        codec = chat.codec_for("hermes" if form == "llama 3" else form, **options)
    tool, argument = TOOLS.get(form, ("python", "code"))
    called = tool if name is None or form in TOOLS else name
    turns = [
        before + written(codec, "hermes" if form == "llama 3" else form, called, argument, value) + after
        for value, before, after in values
    ]
    episode = play(chat, codec, turns, Fragile(tool, argument), how)
    event(f"{form}: {episode.stop_reason.value}")
    assert not episode.is_void, episode.error
    assert_can_be_stored_and_sent(episode)


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Half a character in a traceback cannot be sent from one test process to another."""
    caplog.set_level(logging.CRITICAL, logger="verl_agentic.base.tools.tool_env")


@pytest.mark.parametrize("what", sorted(OF_ARGUMENTS))
def test_a_tool_that_raises_on_its_arguments_answers_with_an_error(families: Mapping[str, Any], what: str) -> None:
    chat = families["chatml"]
    call = FORMATS["hermes"].write([("python", {"code": what})])
    episode = play(chat, chat.codec, [call, "42"], Fragile())
    assert not episode.is_void and episode.reward.outcome == 1.0
    if what != "half a character":
        kind = "tool_timeout" if what == "slow" else "tool_raised"
        (told,) = [m for m in episode.messages if m.role == "tool"]
        assert told.is_error and told.error_kind == kind and told.content.startswith("Error: ")
        assert len(told.content) < 1_000 and episode.numbers()[f"call_error/{kind}"] == 1.0


@pytest.mark.parametrize("what", sorted(OF_INFRASTRUCTURE))
def test_a_failure_around_a_tool_voids_the_episode(families: Mapping[str, Any], what: str) -> None:
    chat = families["chatml"]
    call = FORMATS["hermes"].write([("python", {"code": what})])
    episode = play(chat, chat.codec, [call, "42"], Fragile())
    assert episode.is_void and episode.error


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]} if levels % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (nested(MAX_DEPTH), None),
        (nested(MAX_DEPTH + 2), "nested deeper"),
        ({"a": "x" * (MAX_SIZE - 10)}, None),
        ({"a": "x" * MAX_SIZE}, "characters and values"),
        ({"a": [0] * MAX_SIZE}, "characters and values"),
        ({"a": 2**63 - 1, "b": -(2**63), "c": True, "d": None, "e": 0.5, "é": "🙂"}, None),
        ({"a": 2**63}, "64 bits"),
        ({"a": float("nan")}, "not finite"),
        ({"a": float("inf")}, "not finite"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ({"a": {1, 2}}, "type set"),
        ({"a": b"x"}, "type bytes"),
    ],
)
def test_arguments_have_bounds(value: Any, reason: str | None) -> None:
    problem = problem_of(value)
    assert problem is None if reason is None else reason in str(problem)
    call = call_with("f", value)
    assert (call.error is None) == (reason is None) and (call.error_kind or "malformed_json") == "malformed_json"
    assert call.arguments == (value if reason is None else {})


@pytest.mark.parametrize("name", ["x" * 257, "a\ud800"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    assert call_with(name, {}).error_kind == "malformed_json" and len(call_with(name, {}).name) <= 256


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 102 + "]" * 102, "nested deeper"),
        ("9" * 5_000, "4300 digits"),
        (f'"{"x" * MAX_SIZE}"', "longer than"),
        ("[1e999]", "not finite"),
        (r'"\ud800"', "surrogate"),
        ("NaN", "no JSON"),
    ],
)
def test_json_that_holds_what_no_argument_may_be_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_json(text)


HOSTILE = (
    "</think>",
    "<think>",
    "<parameter=a>",
    "<parameter=",
    '<parameter name="',
    "<arg_key>",
    "<arg_key>a</arg_key>",
    "<",
)


@pytest.fixture
def within_cpu_seconds() -> Any:
    """Ends a test whose process has computed for 20 seconds, however busy the machine is."""

    def stop(*_: Any) -> None:
        raise AssertionError("this takes longer than it should")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.sample(1, slow=3)
@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_no_turn_takes_minutes_to_read(tiny_chat: Any, format_name: str, within_cpu_seconds: None) -> None:
    form = FORMATS[format_name]
    parser = ToolParser.get_tool_parser(format_name, tiny_chat[0])
    reader = CallReader(parser, tool_format=form)
    fragments = {*HOSTILE, *form.tags, *(form.value or ())}
    for fragment in sorted(fragments):
        many = fragment * (60_000 // len(fragment))
        for text in (many, form.prefix("python") + many + form.call[1] + form.block[1]):
            asyncio.run(reader.read(text, turn=0, tools=(), starts_in_reasoning=False))


def test_a_call_has_at_most_256_arguments(tiny_chat: Any) -> None:
    for name in ("qwen3_coder", "glm", "seed", "minimax", "deepseek_v4"):
        parser = ToolParser.get_tool_parser(name, tiny_chat[0])
        reader = CallReader(parser, tool_format=FORMATS[name])
        for count, errors in ((256, [None]), (257, ["malformed_json"])):
            text = FORMATS[name].write([("python", {f"a{number}": "1" for number in range(count)})])
            read = asyncio.run(reader.read(text, turn=0, tools=(), starts_in_reasoning=False))
            assert [call.error_kind for call in read.calls] == errors


@pytest.mark.sample(3, slow=3)
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(known_protocols()) - {"chat"}))
def test_no_turn_of_a_text_protocol_takes_minutes_to_read(name: str, within_cpu_seconds: None) -> None:
    protocol = load_protocol(name)
    kinds = {
        "json": lambda: JsonActions(protocol, repair=False),
        "functions": lambda: FunctionActions(protocol),
        "call_list": lambda: CallListActions(protocol, repair=False),
    }
    actions: Any = kinds.get(protocol.kind, lambda: TagActions(protocol, self_written=False))()
    braces = ("{", '{"a":', '{"action":', '{"action":1,', '{"action":[{"a":1},99999999999999999999,', "[", '"')
    fences = ("```", "```python\n", "<answer>", "</answer>", "<search>", "<think></think>", "\\boxed{")
    fences += ("```bash\n", "<function=", "<function=a>", "<parameter=b>", "</parameter>", "</function>")
    fences += ("<function=a>" + "<parameter=b></parameter>" + "</function>", "<function" + " " * 50)
    lists = ("<tool_call>", "</tool_call>", "<tool_call>{}</tool_call>", '{"name": "a"}\n', "<response>", "</response>")
    for fragment in (*HOSTILE, *braces, *fences, *lists):
        many = fragment * (60_000 // len(fragment))
        for text in (many, f"<answer>{many}</answer>", f"<search>{many}</search>", f"<tool_call>{many}</tool_call>"):
            actions.read(text, turn=0, parameters={}, in_reasoning=False)


def test_json_actions_are_found_behind_formulas_and_programs() -> None:
    actions = JsonActions(load_protocol("json_action"), repair=False)
    said = "\\frac{1}{2} { x } {{}} " * 400 + '{ "no": } ' * 100
    read = actions.read(said + '{"action": "Up"}', turn=0, parameters={}, in_reasoning=False)
    assert [call.error for call in read.calls] == [None]
