"""Steps as keys: what counts as the same state and the same action, and which rows have which steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fakes import END, LIMITS, ROW, CharCodec, decode, encode, episode_setup

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.delegate import DelegateTool
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import UNSCORED, Action, Message, Observation, Reward, StopReason, ToolCall
from verl_agentic.episode.attempt.compaction import SUMMARY_REQUEST, Compaction
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.step_keys import step_keys
from verl_agentic.episode.run_episode import run_episode

LONG = replace(LIMITS, max_response_tokens=1_000, max_context_tokens=1_000, max_turns=12, max_retries=0)


class Codec(CharCodec):
    """Calls are `call:name:text`, several of them separated by `;`; `answer:x` marks an answer."""

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[object]) -> Action:
        text = decode(token_ids).rstrip("$")
        said, *parts = text.split("call:")
        calls = tuple(_call(part.rstrip(";")) for part in parts)
        answer = text.partition("answer:")[2] if "answer:" in text else None
        return Action(turn=turn, text=text, content=said, tool_calls=calls, answer=answer)


def _call(part: str) -> ToolCall:
    name, _, text = part.partition(":")
    return ToolCall(name, {"task": text} if name == "delegate" else {"x": text, "a": 1})


class Env(ToolEnv):
    """Answers turn i with the i-th text; the last turn, or one without a call, ends it."""

    def __init__(self, row: EnvRow, texts: Sequence[str]) -> None:
        super().__init__(row, [])
        self.texts = list(texts)

    async def step(self, action: Action) -> Observation:
        if not action.tool_calls or not self.texts:
            return Observation(stop=StopReason.ANSWERED)
        return Observation((Message("tool", self.texts.pop(0)),))

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(1.0)


class NamedEnv(Env):
    """Names its states by what is left to be told."""

    def state_key(self) -> str:
        return f"{len(self.texts) % 2} left"


async def play(
    turns: Sequence[str],
    texts: Sequence[str] = (),
    *,
    row: EnvRow = ROW,
    make: Callable[..., Any] = Env,
    summary: str = "found nothing",
    **options: Any,
) -> Episode:
    script = iter(turns)

    def next_text(messages: Sequence[Message]) -> str:
        return summary if messages[-1].content == SUMMARY_REQUEST else next(script)

    chosen = replace(
        episode_setup(ScriptedPolicy(next_text, encode=encode, end_ids=[END]), LONG, **options), codec=Codec()
    )
    return await run_episode(row, make_env=lambda r: make(r, texts), setup=chosen, request_id="r")


async def steps(*args: Any, **options: Any) -> list[list[int]]:
    (row,) = step_keys(await play(*args, **options))
    return row


async def test_every_turn_is_a_step_and_keys_fit_into_signed_integers() -> None:
    found = await steps(["call:a:1", "call:b:2", "done"], ["one", "two"])
    assert [turn for turn, _, _ in found] == [0, 1, 2]
    keys = [key for _, *pair in found for key in pair]
    assert len(set(keys)) == 6 and all(0 <= key < 2**63 for key in keys)
    assert any(key >= 2**62 for key in keys)


async def test_what_was_shown_last_is_the_state_whatever_came_before() -> None:
    first = await steps(["call:a:1", "call:b:2", "done"], ["one", "the same"])
    second = await steps(["call:c:3", "done"], [" the same\n"])
    assert first[2][1] == second[1][1]
    assert first[1][1] != second[1][1]


async def test_turn_0_starts_from_the_prompt() -> None:
    (first,), (second,) = await steps(["done"]), await steps(["no"])
    (third,) = await steps(["done"], row=EnvRow(prompt=(Message("user", "another question"),)))
    assert first[1] == second[1] != third[1]
    assert first[2] == third[2] != second[2]


async def test_what_is_said_beside_a_call_is_no_part_of_the_action() -> None:
    variants = ["call:a:1", "well call:a:1", "call:a:2", "call:b:1", "call:a:1;call:a:1"]
    actions = [(await steps([text, "done"], ["one"]))[0][2] for text in variants]
    assert actions[0] == actions[1]
    assert len(set(actions)) == 4


async def test_the_order_of_arguments_does_not_matter_and_failed_calls_differ_from_carried_out_ones() -> None:
    def action(call: ToolCall) -> Action:
        return Action(turn=0, text="", content="", tool_calls=(call,))

    async def key(call: ToolCall) -> int:
        episode = await play(["call:a:1", "done"], ["one"])
        done = action(call)
        messages = (*episode.messages[:1], done.to_message(), *episode.messages[2:])
        return step_keys(replace(episode, actions=(done, *episode.actions[1:]), messages=messages))[0][0][2]

    same = [await key(ToolCall("a", {"x": "1", "y": [2]}, "i")), await key(ToolCall("a", {"y": [2], "x": "1"}, "j"))]
    failed = await key(ToolCall("a", {"x": "1", "y": [2]}, "i", "no JSON", "malformed_json"))
    assert same[0] == same[1] != failed


async def test_a_marked_answer_is_the_action_of_its_turn() -> None:
    (first,), (second,) = await steps(["this way answer:42"]), await steps(["that way answer: 42 "])
    assert first[2] == second[2]


async def test_the_environment_may_name_its_states() -> None:
    found = await steps(["call:a:1", "call:a:1", "done"], ["one", "two"], make=NamedEnv)
    states = [state for _, state, _ in found]
    assert states[0] == states[2] != states[1]
    other = await steps(["call:a:1", "done"], ["other"], make=NamedEnv)
    assert [state for _, state, _ in other] == [states[1], states[0]]


async def test_a_state_key_that_fails_is_the_environments_failure() -> None:
    class Broken(Env):
        def state_key(self) -> str:
            raise RuntimeError("lost")

    episode = await play(["done"], make=Broken)
    assert episode.error_kind == "env" and "lost" in (episode.error or "")


async def test_summaries_are_steps_and_rows_go_on_counting() -> None:
    how = Compaction(strategy="summary", min_room_tokens=350, max_summary_tokens=100, max_rows=9)
    texts = ["x" * 300, "y" * 310, "z"]
    episode = await play(["call:a:1", "call:b:2", "call:c:3", "done"], texts, compaction=how)
    first, second = step_keys(episode)
    assert [turn for turn, _, _ in first] == [0, 1, 2] and [turn for turn, _, _ in second] == [3, 4]
    assert [action.turn for action in episode.actions] == [0, 1, 3, 4]
    # What turn 3 was shown is the summary: the same text makes it the same state.
    longer = await play(["call:d:4", "call:e:5", "done"], ["v" * 320, "w" * 300], compaction=how)
    (_, _, summary), (turn, after, _) = step_keys(longer)[0][-1], step_keys(longer)[1][0]
    assert (turn, after, summary) == (3, second[0][1], first[2][2])
    other = step_keys(await play(["call:a:1", "call:b:2", "done"], texts[:2], compaction=how, summary="found it"))
    assert other[0][2][2] != first[2][2] and other[1][0][1] != second[0][1]


async def test_named_states_do_not_stand_for_those_of_summaries() -> None:
    how = Compaction(strategy="summary", min_room_tokens=350, max_summary_tokens=100, max_rows=9)
    turns, texts = ["call:a:1", "call:b:2", "done"], ["x" * 300, "y" * 310]
    first, second = step_keys(await play(turns, texts, compaction=how, make=NamedEnv))
    plain, named = await steps(turns, ["x", "y"], make=NamedEnv), [*first, *second]
    assert [step[1] for step in named if step[0] != 2] == [step[1] for step in plain]
    assert named[2][1] not in [step[1] for step in plain]


async def test_dropped_observations_change_no_state() -> None:
    how = Compaction(strategy="drop_observations", keep_last=1, min_room_tokens=200, max_rows=9)
    turns = [*(f"call:{name}:1" for name in "abcdef"), "done"]
    texts = [letter * 250 for letter in "uvwxyz"]
    rows = step_keys(await play(turns, texts, compaction=how))
    assert len(rows) > 1
    found = [step for row in rows for step in row]
    assert [turn for turn, _, _ in found] == list(range(7))
    # Each text was shown once, and is the state of the turn after it.
    for turn, text in enumerate(texts, start=1):
        assert found[turn][1] == (await steps(["call:q:9", "done"], [text]))[1][1]


async def test_rows_of_sub_agents_have_no_steps() -> None:
    class Delegating(ToolEnv):
        def __init__(self, row: EnvRow, texts: Sequence[str]) -> None:
            super().__init__(row, [DelegateTool()])

    episode = await play(["call:delegate:count", "2", "done"], make=Delegating, has_rubric=True)
    assert episode.reward == UNSCORED and episode.num_side_rows == 1
    side, own = step_keys(episode)
    assert side == [] and [turn for turn, _, _ in own] == [0, 1]


async def test_void_episodes_have_no_steps() -> None:
    class Failing(Env):
        async def step(self, action: Action) -> Observation:
            if not self.texts:
                raise RuntimeError("down")
            return await super().step(action)

    episode = await play(["call:a:1", "call:b:2"], ["one"], make=Failing)
    assert episode.is_void and step_keys(episode) == [[]]


def test_keys_are_the_same_in_every_process() -> None:
    module = "verl_agentic.episode.records.step_keys"
    code = f"from {module} import _hash_value; print(_hash_value('shown', [['user', '', 'hé']]))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


async def test_a_game_is_in_the_same_state_however_it_was_reached() -> None:
    package = load_env_package("text_game")
    board = ["######", "#____#", "#@$__#", "#____#", "#___.#", "######"]
    row = EnvRow(prompt=(Message("user", "play"),), ground_truth={"game": "sokoban", "board": board})

    async def after(*moves: str) -> str:
        env: Any = package.make_env(row)
        await env.start()
        for move in moves:
            await env.step(Action(0, "", "", (ToolCall("act", {"action": move}, ""),)))
        return env.state_key()

    assert await after() == await after("Up", "Down") == await after("Left")  # into the wall
    assert await after() != await after("Up")
