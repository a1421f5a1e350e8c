"""The turns of an episode: budgets, the reserve for the answer, caps on observations, and what exploration forces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, CharCodec, CharTokenizer, FakeEnv, decode, encode, episode_setup

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, SegmentKind, StopReason, ToolCall, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import PARTIAL_SOLUTION, EpisodeLimits, Exploration
from verl_agentic.episode.codec.codec import ContextTokens
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.tools.python import SCHEMA

NOTICE = "last turn, {tokens} left"
ROOMY = EpisodeLimits(max_response_tokens=2_000, max_context_tokens=3_000, max_turns=9, max_retries=0)


@dataclass
class Script:
    """Samples scripted turns, one for every request, and keeps what it was given."""

    turns: Sequence[str]
    prompts: list[str] = field(default_factory=list)
    budgets: list[int] = field(default_factory=list)

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, **_: object) -> Completion:
        ids = [*encode(self.turns[len(self.prompts)]), END]
        self.prompts.append(decode(prompt_ids))
        self.budgets.append(max_tokens)
        finish = "length" if len(ids) > max_tokens else "stop"
        ids = ids[:max_tokens]
        return Completion(token_ids=ids, log_probs=[-1.0] * len(ids), finish_reason=finish)


@dataclass
class Answering(FakeEnv):
    """Answers every call with the next text, again and again."""

    texts: Sequence[str] = ("42",)
    calls: list[ToolCall] = field(default_factory=list)

    async def step(self, action: Action) -> Observation:
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED)
        self.calls += action.tool_calls
        return Observation((Message("tool", self.texts[(len(self.calls) - 1) % len(self.texts)]),))


async def play(
    turns: Sequence[str] | Script, limits: EpisodeLimits = ROOMY, *, texts: Sequence[str] = ("42",), **options: Any
) -> tuple[Episode, Script, Answering]:
    script, row = turns if isinstance(turns, Script) else Script(turns), options.pop("row", ROW)
    env = options.pop("env", None) or Answering(row, texts=texts)
    chosen = episode_setup(script, limits, **options)
    episode = await run_episode(row, make_env=lambda _: env, setup=chosen, request_id="r")
    return episode, script, env


def response(episode: Episode) -> str:
    return decode(episode.trajectories[-1].response_ids)


def by(episode: Episode, kind: SegmentKind) -> list[str]:
    row = episode.trajectories[-1]
    return [decode(row.response_ids[s.start : s.end]) for s in row.segments() if s.kind is kind]


# Budgets.


async def test_a_turn_may_have_what_its_own_budget_and_the_row_leave() -> None:
    limits = replace(ROOMY, max_turn_tokens=30, max_response_tokens=60)
    _, script, _ = await play(["call:a", "call:b", "42"], limits)
    # A call has 7 tokens and its answer "\n<tool>42<assistant>" 20, so 60, then 33, then 6 are left.
    assert script.budgets == [30, 30, 6]


async def test_observations_do_not_count_against_the_sampled_tokens_of_the_episode() -> None:
    limits = replace(ROOMY, max_episode_tokens=20)
    episode, script, _ = await play(["call:a", "call:b", "42"], limits, texts=["x" * 500])
    assert episode.stop_reason is StopReason.ANSWERED and script.budgets == [20, 13, 6]


async def test_the_sampled_tokens_of_the_episode_are_a_budget_over_all_rows() -> None:
    limits = replace(ROOMY, max_episode_tokens=17, max_context_tokens=200, max_response_tokens=190)
    shorten = Compaction(strategy="drop_observations", keep_last=0, min_room_tokens=30)
    episode, script, _ = await play(["call:a", "call:b", "call:c"], limits, texts=["x" * 130], compaction=shorten)
    assert script.budgets == [17, 10, 3] and len(episode.trajectories) == 3
    assert episode.stop_reason is StopReason.MAX_TOKENS
    assert sum(row.num_model_tokens for row in episode.trajectories) == 17


async def test_a_spent_budget_of_the_episode_is_no_reason_to_shorten_the_conversation() -> None:
    shorten = Compaction(strategy="drop_observations", keep_last=0, min_room_tokens=100)
    episode, _, _ = await play(["call:a", "42"], replace(ROOMY, max_episode_tokens=50), compaction=shorten)
    assert len(episode.trajectories) == 1 and episode.stop_reason is StopReason.ANSWERED


# The reserve.


async def test_before_its_last_turn_the_policy_is_told_and_the_notice_is_not_trained() -> None:
    limits = replace(ROOMY, max_turns=2, max_response_tokens=200, answer_reserve_tokens=50, final_notice=NOTICE)
    episode, script, _ = await play(["call:a", "42"], limits)
    assert episode.stop_reason is StopReason.ANSWERED and episode.reward.outcome == 1.0
    # 200 less "call:a$" (7) and "\n<tool>42<user>last turn, 138 left<assistant>" (45) are 148.
    assert by(episode, SegmentKind.TOOL) == ["\n<tool>42<user>last turn, 148 left<assistant>"]
    assert script.budgets == [150, 148]
    assert episode.numbers()["final_notices"] == 1.0


async def test_in_its_last_turn_calls_are_not_carried_out() -> None:
    limits = replace(ROOMY, max_turns=2, answer_reserve_tokens=50, final_notice=NOTICE)
    episode, _, env = await play(["call:a", "call:b"], limits)
    assert episode.stop_reason is StopReason.MAX_TURNS
    assert [call.name for call in env.calls] == ["a"]
    assert env.transcript is not None and env.transcript.final_answer == ""


async def test_after_its_last_turn_an_environment_that_wants_more_gets_nothing() -> None:
    class Insisting(Answering):
        async def step(self, action: Action) -> Observation:
            return Observation((Message("user", "act!"),))

    limits = replace(ROOMY, max_response_tokens=300, answer_reserve_tokens=200, final_notice=NOTICE)
    episode, script, _ = await play(["x" * 80, "y", "z"], limits, env=Insisting(ROW))
    assert (episode.stop_reason, len(script.prompts)) == (StopReason.MAX_TOKENS, 2)


@pytest.mark.parametrize("max_turn_tokens", [None, 50])
async def test_a_turn_that_would_take_from_the_reserve_is_cut_and_followed_by_the_last_one(
    max_turn_tokens: int | None,
) -> None:
    limits = replace(
        ROOMY, max_response_tokens=100, max_turn_tokens=max_turn_tokens, answer_reserve_tokens=60, final_notice=NOTICE
    )
    episode, script, _ = await play(["x" * 80, "42"], limits)
    # 40 of the 81 tokens, 37 of "$\n<user>last turn, 23 left<assistant>", and 23 for the answer.
    assert response(episode) == "x" * 40 + "$\n<user>last turn, 23 left<assistant>42$"
    assert script.budgets == [40, 23] and episode.stop_reason is StopReason.ANSWERED
    row = episode.trajectories[0]
    assert [decode([t]) for t, m in zip(row.response_ids, row.response_mask, strict=True) if m] == ["x"] * 40 + list(
        "42$"
    )
    assert [action.content for action in episode.actions] == ["x" * 40, "42"]


async def test_an_observation_is_cut_rather_than_the_reserve() -> None:
    limits = replace(ROOMY, max_response_tokens=150, answer_reserve_tokens=80, final_notice=NOTICE)
    episode, script, _ = await play(["call:a", "42"], limits, texts=["x" * 500])
    (observed,) = by(episode, SegmentKind.TOOL)
    assert "tokens cut" in observed and observed.endswith(f"<user>last turn, {script.budgets[1]} left<assistant>")
    # What is left is the reserve, less the notice; the marker may take a word of it.
    assert script.budgets[1] >= 80 - len("<user>last turn, 50 left") - len("about ")
    assert episode.stop_reason is StopReason.ANSWERED


async def test_several_observations_share_the_cut() -> None:
    class Two(Answering):
        async def step(self, action: Action) -> Observation:
            if not action.tool_calls:
                return Observation(stop=StopReason.ANSWERED)
            return Observation((Message("tool", "x" * 300), Message("tool", "y" * 300)))

    limits = replace(ROOMY, max_response_tokens=260, answer_reserve_tokens=100, final_notice=NOTICE)
    episode, script, _ = await play(["call:a", "42"], limits, env=Two(ROW))
    (observed,) = by(episode, SegmentKind.TOOL)
    assert observed.count("x") == observed.count("y") > 10 and observed.count("tokens cut") == 2
    assert script.budgets[1] >= 100 - len("<user>last turn, 75 left") - 1


async def test_the_notice_tells_the_budget_of_the_turn_where_that_is_smaller() -> None:
    limits = replace(ROOMY, max_turns=2, max_turn_tokens=25, answer_reserve_tokens=50, final_notice=NOTICE)
    episode, script, _ = await play(["call:a", "42"], limits)
    assert "last turn, 25 left" in response(episode) and script.budgets == [25, 25]


async def test_a_policy_that_does_not_answer_in_its_last_turn_ends_with_the_budget_that_made_it_the_last() -> None:
    limits = replace(ROOMY, max_response_tokens=100, answer_reserve_tokens=60, final_notice=NOTICE)
    episode, _, _ = await play(["x" * 80, "call:a"], limits)
    assert episode.stop_reason is StopReason.MAX_TOKENS
    limits = replace(limits, max_response_tokens=1_000, max_context_tokens=125)
    episode, _, _ = await play(["x" * 80, "call:a"], limits)
    assert episode.stop_reason is StopReason.CONTEXT_FULL


async def test_without_a_reserve_nothing_is_said() -> None:
    episode, script, _ = await play(["call:a", "call:b"], replace(ROOMY, max_turns=2))
    assert episode.stop_reason is StopReason.MAX_TURNS and "last" not in script.prompts[1]


async def test_an_agent_whose_first_turn_is_its_last_just_answers() -> None:
    limits = replace(ROOMY, max_turns=1, max_response_tokens=100, answer_reserve_tokens=60)
    _, script, _ = await play(["42"], limits)
    assert script.budgets == [100]


def test_a_reserve_that_leaves_no_room_for_anything_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="answer_reserve_tokens"):
        replace(ROOMY, answer_reserve_tokens=2_000)


# Observations.


@pytest.mark.parametrize(
    ("keep", "seen"),
    [
        ("head", "01234\n[... 5 tokens cut ...]"),
        ("tail", "[... 5 tokens cut ...]\n56789"),
        ("middle", "01\n[... 5 tokens cut ...]\n789"),
    ],
)
async def test_a_long_observation_is_cut_where_it_was_asked_for(keep: Any, seen: str) -> None:
    limits = replace(ROOMY, max_observation_tokens=5, observation_keep=keep)
    episode, _, _ = await play(["call:a", "call:b", "42"], limits, texts=["0123456789", "12345"])
    assert by(episode, SegmentKind.TOOL) == [f"\n<tool>{seen}<assistant>", "\n<tool>12345<assistant>"]
    assert episode.numbers()["clipped_observations"] == 1.0
    assert [m.content for m in episode.messages if m.role == "tool"] == [seen, "12345"]


async def test_a_flood_is_never_encoded_as_a_whole() -> None:
    class Counting(CharTokenizer):
        chars = 0

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            self.chars += len(text)
            return super().encode(text, add_special_tokens=add_special_tokens)

    @dataclass
    class CountingCodec(CharCodec):
        chars: int = 0

        async def encode_context(self, previous: Any, new: Sequence[Message], **rest: Any) -> ContextTokens:
            self.chars += sum(len(message.content) for message in new)
            return await super().encode_context(previous, new, **rest)

    tokenizer, codec = Counting(), CountingCodec()
    chosen = EpisodeSetup(policy=Script(["call:a"]), codec=codec, tokenizer=tokenizer, limits=ROOMY)  # type: ignore[arg-type]
    episode = await run_episode(ROW, make_env=lambda r: Answering(r, texts=["x" * 10**7]), setup=chosen, request_id="r")
    assert episode.stop_reason is StopReason.MAX_TOKENS and not episode.is_void
    assert tokenizer.chars < 100_000 and codec.chars < 10_000


async def test_an_observation_that_cannot_be_encoded_is_made_so() -> None:
    episode, _, _ = await play(["call:a", "42"], texts=["a\ud800b"])
    assert by(episode, SegmentKind.TOOL) == ["\n<tool>a?b<assistant>"]


# Calls.


class Many(CharCodec):
    """`call:a;call:b` are two calls; `call:` without a name is one that could not be read."""

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[object]) -> Action:
        text = decode(token_ids).rstrip("$")
        names = [part.removeprefix("call:") for part in text.split(";") if part.startswith("call:")]
        calls = tuple(
            ToolCall(name, {}, f"c{i}") if name else ToolCall("", {}, f"c{i}", "no name", "empty")
            for i, name in enumerate(names)
        )
        return Action(
            turn=turn, text=text, content="" if calls else text, tool_calls=calls, counts={"repaired_calls": 1}
        )


class Echo:
    def __init__(self, name: str) -> None:
        self.name = name
        self.schema: dict[str, Any] = {}

    async def call(self, arguments: Any) -> ToolResult:
        return ToolResult(f"{self.name} says hello")


class Tools(ToolEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(1.0)


async def test_every_call_of_a_turn_is_answered_those_beyond_the_limit_with_an_error() -> None:
    limits = replace(ROOMY, max_calls_per_turn=2)
    script = Script(["call:a;call:;call:b;call:nope", "call:nope", "done"])
    chosen = EpisodeSetup(policy=script, codec=Many(), tokenizer=CharTokenizer(), limits=limits)  # type: ignore[arg-type]
    episode = await run_episode(ROW, make_env=lambda r: Tools(r, [Echo("a"), Echo("b")]), setup=chosen, request_id="r")
    told = [(m.call_id, m.content) for m in episode.messages if m.role == "tool"]
    late = "Error: at most 2 calls may stand in one turn; this one was not carried out, write it again in the next turn"
    assert told == [
        ("c0", "a says hello"),
        ("c1", "Error: no name"),
        ("c2", late),
        ("c3", late),
        ("c0", "Error: unknown tool 'nope'; known tools: ['a', 'b']"),
    ]
    numbers = episode.numbers()
    assert (numbers["tool_calls"], numbers["tool_errors"], numbers["repaired_calls"]) == (5.0, 4.0, 3.0)
    assert {k: v for k, v in numbers.items() if k.startswith("call_error/") and v} == {
        "call_error/empty": 1.0,
        "call_error/too_many": 2.0,
        "call_error/unknown_tool": 1.0,
    }
    assert episode.stop_reason is StopReason.ANSWERED


# What is forced.


@dataclass
class Named(Answering):
    tools: Sequence[object] = (Echo("a"), Echo("b"))


async def test_a_forced_call_is_context_and_what_the_policy_adds_to_it_is_trained() -> None:
    explore = Exploration(epsilon_tool=1.0, seed=3)
    episode, script, env = await play(
        ["X", "Y", "42"], replace(ROOMY, max_turns=2), env=Named(ROW), exploration=explore
    )
    first, second = (call.name for call in env.calls)
    assert {first[0], second[0]} <= {"a", "b"} and (first[1:], second[1:]) == ("X", "Y")
    assert script.prompts[0].endswith(f"<assistant>call:{first[0]}")
    row = episode.trajectories[0]
    forced = by(episode, SegmentKind.FRAMEWORK)
    assert forced == [f"call:{first[0]}", f"call:{second[0]}"]
    assert by(episode, SegmentKind.MODEL) == ["X$", "Y$"]
    assert all(p == 0.0 for p, m in zip(row.log_probs, row.response_mask, strict=True) if not m)
    assert row.turn_ids[:6] == [0] * 6 and episode.numbers()["forced_tokens"] == 12.0
    assert row.token_ids[: len(script.prompts[1])] == encode(script.prompts[1])


async def test_the_last_turn_is_not_forced_to_call() -> None:
    limits = replace(ROOMY, max_turns=2, answer_reserve_tokens=50, final_notice=NOTICE)
    explore = Exploration(epsilon_tool=1.0, seed=3)
    episode, _, _ = await play(["X", "42"], limits, env=Named(ROW), exploration=explore)
    assert len(by(episode, SegmentKind.FRAMEWORK)) == 1 and episode.stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("family", ["chatml", "strips thinking"])
async def test_a_forced_call_stands_outside_of_the_reasoning_that_the_prompt_has_opened(
    families: dict[str, Any], family: str
) -> None:
    chat = families[family]

    class Continuing:
        async def generate(self, prompt_ids: Sequence[int], *, messages: Sequence[Message], **_: object) -> Completion:
            text = "42" if messages[-1].role == "tool" else '{"code": "1"}}\n</tool_call>'
            ids = [*chat.tokenizer.encode(text), chat.token("<|im_end|>")]
            return Completion(token_ids=ids, log_probs=None, finish_reason="stop")

    class Python(Echo):
        def __init__(self) -> None:
            self.name, self.schema = "python", SCHEMA

    chosen = EpisodeSetup(
        policy=Continuing(),
        codec=chat.codec,
        tokenizer=chat.tokenizer,
        limits=replace(ROOMY, max_turns=1),
        exploration=Exploration(epsilon_tool=1.0),
    )
    episode = await run_episode(ROW, make_env=lambda row: Tools(row, [Python()]), setup=chosen, request_id="r")
    (call,) = episode.actions[0].tool_calls
    assert (call.name, dict(call.arguments), call.error) == ("python", {"code": "1"}, None), episode.error


def test_a_tenth_of_a_thousand_turns_is_forced_and_every_tool_has_its_share() -> None:
    tools = ["a", "b", "c", "d"]
    drawn = [Exploration(epsilon_tool=0.1, seed=0).tool(turn, tools) for turn in range(1000)]
    forced = [tool for tool in drawn if tool is not None]
    assert 100 - 19 <= len(forced) <= 100 + 19  # two standard deviations
    assert all(len(forced) / 4 - 14 <= forced.count(tool) <= len(forced) / 4 + 14 for tool in tools)
    assert drawn == [Exploration(epsilon_tool=0.1, seed=0).tool(turn, tools) for turn in range(1000)]
    assert drawn != [Exploration(epsilon_tool=0.1, seed=1).tool(turn, tools) for turn in range(1000)]


def test_without_tools_or_without_a_chance_nothing_is_forced() -> None:
    assert Exploration(epsilon_tool=1.0).tool(0, []) is None
    assert [Exploration().tool(turn, ["a"]) for turn in range(50)] == [None] * 50


SOLVED = EnvRow(prompt=(Message("user", "question"),), extra={PARTIAL_SOLUTION: "12345678"})


@pytest.mark.parametrize(("share", "given"), [(0.0, ""), (0.25, "12"), (0.75, "123456"), (1.0, "12345678")])
async def test_a_part_of_a_solution_begins_the_first_turn_and_is_not_trained(share: float, given: str) -> None:
    explore = Exploration(partial_solution=share)
    episode, script, _ = await play(["so 42"], row=SOLVED, exploration=explore)
    assert script.prompts[0].endswith("<assistant>" + given)
    assert by(episode, SegmentKind.FRAMEWORK) == ([given] if given else [])
    row = episode.trajectories[0]
    assert decode(row.response_ids[: len(given)]) == given and row.response_mask[: len(given)] == [0] * len(given)
    assert row.response_mask[len(given)] == 1 and episode.actions[0].text.startswith(given)


async def test_forced_text_that_leaves_no_room_for_the_policy_is_left_out() -> None:
    limits = replace(ROOMY, max_turn_tokens=8)
    episode, _, _ = await play(["42"], limits, row=SOLVED, exploration=Exploration(partial_solution=1.0))
    assert response(episode) == "42$" and episode.numbers()["forced_tokens"] == 0.0


@pytest.mark.parametrize("bad", [{"epsilon_tool": 1.5}, {"partial_solution": -0.1}])
def test_chances_outside_of_0_and_1_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"must be a number \(at least 0 and at most 1\)"):
        Exploration(**bad)


async def test_sampled_tokens_that_the_protocol_keeps_out_of_the_loss_have_mask_0() -> None:
    class Bracketed(CharCodec):
        """Leaves text in brackets untrained."""

        def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
            text = decode(token_ids)
            return [(text.index("(") + 1, text.index(")"))] if "(" in text else []

    script = Script(["a(bc)d", "42"])
    chosen = replace(episode_setup(script, ROOMY), codec=Bracketed())  # type: ignore[arg-type]
    episode = await run_episode(ROW, make_env=Answering, setup=chosen, request_id="r")
    (row,) = episode.trajectories
    assert decode(row.response_ids) == "a(bc)d$" and row.response_mask == [1, 1, 0, 0, 1, 1, 1]
    assert by(episode, SegmentKind.MODEL) == ["a(bc)d$"] and episode.actions[0].text == "a(bc)d$"


async def test_an_episode_without_a_trained_token_still_has_a_response_and_mask_0() -> None:
    class Untrained(CharCodec):
        """Keeps all sampled tokens out of the loss."""

        def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
            return [(0, len(token_ids))]

    chosen = replace(episode_setup(Script(["42"]), ROOMY), codec=Untrained())  # type: ignore[arg-type]
    episode = await run_episode(ROW, make_env=Answering, setup=chosen, request_id="r")
    (row,) = episode.trajectories
    assert row.response_ids and row.response_mask == [0] * len(row.response_ids)


async def test_markers_that_were_broken_up_in_observations_are_counted() -> None:
    class Wary(CharCodec):
        async def encode_context(self, *args: Any, **options: Any) -> ContextTokens:
            return replace(await super().encode_context(*args, **options), neutralised=2)

    chosen = replace(episode_setup(Script(["call:a", "call:b", "42"]), ROOMY), codec=Wary())  # type: ignore[arg-type]
    episode = await run_episode(ROW, make_env=Answering, setup=chosen, request_id="r")
    assert episode.numbers()["neutralised_markers"] == 4.0


# What cannot be used is a failure of the one that gave it.


def unusable(what: object) -> Callable[[], FakeEnv]:
    class Unusable(FakeEnv):
        async def step(self, action: Action) -> Observation:
            return what  # type: ignore[return-value]

    return lambda: Unusable(ROW)


class BadPrompt(FakeEnv):
    async def start(self) -> tuple[Message, ...]:
        return ("question",)  # type: ignore[return-value]


class BadScore(FakeEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return 1.0  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("make", "kind", "error"),
    [
        (unusable(None), "env", "a step must return an Observation, got None"),
        (unusable(Observation()), "env", "neither messages nor a stop reason"),
        (unusable(Observation(stop=StopReason.TIMEOUT)), "env", "let it raise an EnvError instead"),
        (
            unusable(Observation((Message("tool", "x"),), reward=float("nan"))),
            "env",
            "must be a finite number, got nan",
        ),
        (unusable(Observation((Message("tool", None),))), "env", "speaks in messages with text"),  # type: ignore[arg-type]
        (unusable(Observation((Message("tool", "x"),), info={"n": None})), "env", "'n' of an observation"),  # type: ignore[dict-item]
        (lambda: BadPrompt(ROW), "env", "speaks in messages with text, got 'question'"),
        (lambda: BadScore(ROW), "scoring", "a scorer must return a Reward, got 1.0"),
    ],
)
async def test_an_environment_that_answers_nonsense_has_failed(
    make: Callable[[], FakeEnv], kind: str, error: str
) -> None:
    turns = ["42"] if kind == "scoring" else ["call:a"]
    env = make()
    episode, _, _ = await play(turns, env=env)
    assert (episode.stop_reason, episode.error_kind) == (StopReason.INFRA_ERROR, kind)
    assert error in (episode.error or "") and env.closed == 1


@pytest.mark.parametrize(
    ("completion", "error"),
    [
        (Completion(token_ids=[], log_probs=[], finish_reason="stop"), "1 to 2000 tokens, got 0"),
        (Completion(token_ids=[65] * 2001, log_probs=None, finish_reason="stop"), "1 to 2000 tokens, got 2001"),
        (Completion(token_ids=[65, 66], log_probs=[-1.0], finish_reason="stop"), "one log-prob per token, got 1 for 2"),
    ],
)
async def test_a_server_that_answers_nonsense_has_failed(completion: Completion, error: str) -> None:
    class Broken:
        async def generate(self, prompt_ids: Sequence[int], **_: object) -> Completion:
            return completion

    episode = await run_episode(ROW, make_env=FakeEnv, setup=episode_setup(Broken(), ROOMY), request_id="r")
    assert episode.error_kind == "policy" and error in (episode.error or "")


@pytest.mark.parametrize(
    ("where", "stop"), [("decode_action", StopReason.INFRA_ERROR), ("encode_context", StopReason.POLICY_FAULT)]
)
async def test_a_codec_that_fails_on_what_the_policy_wrote_does_not_raise(where: str, stop: StopReason) -> None:
    class Fragile(CharCodec):
        async def decode_action(self, *args: Any, **options: Any) -> Action:
            if where == "decode_action":
                raise RecursionError("too deep")
            return await super().decode_action(*args, **options)

        async def encode_context(self, *args: Any, **options: Any) -> ContextTokens:
            raise RecursionError("too deep")

    chosen = replace(episode_setup(Script(["call:a"]), replace(LIMITS, max_retries=0)), codec=Fragile())
    episode = await run_episode(ROW, make_env=FakeEnv, setup=chosen, request_id="r")
    assert episode.stop_reason is stop and "too deep" in (episode.error or "")


async def test_a_deadline_names_what_was_late() -> None:
    class Slow(Answering):
        async def step(self, action: Action) -> Observation:
            import asyncio

            await asyncio.sleep(60)
            raise AssertionError

    episode, _, _ = await play(["call:a"], replace(ROOMY, turn_timeout_s=0.05), env=Slow(ROW))
    assert episode.stop_reason is StopReason.TIMEOUT
    assert episode.error == "the environment's step was still running after 0.05 s"
