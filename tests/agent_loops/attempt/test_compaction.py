"""Conversations that become too long go on in new rows; every row is trained with the context that the engine saw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from fakes import END, ROW, CharCodec, CharTokenizer, decode, encode, episode_setup

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.compaction import (
    DROPPED,
    REMOVED,
    SUMMARY_HEADER,
    SUMMARY_REQUEST,
    UNSEEN_HEADER,
    Compaction,
    drop_observations,
)
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.tools.python import SCHEMA

Chat = tuple[Any, Any]
BUDGET = 1_000
LIMITS = EpisodeLimits(max_response_tokens=BUDGET, max_context_tokens=BUDGET, max_turns=12, max_retries=0)
DROP = Compaction(strategy="drop_observations", keep_last=1, min_room_tokens=200, max_rows=9)
SUMMARISE = Compaction(strategy="summary", min_room_tokens=350, max_summary_tokens=100, max_rows=9)


@dataclass
class Recorder:
    """Plays a script, writes a summary when it is asked for one, and keeps what the engine saw and sampled."""

    encode: Any
    end: int
    turns: Sequence[str]
    summary: str = "found nothing"
    seen: list[tuple[list[int], list[int], list[float]]] = field(default_factory=list)
    played: int = 0

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, **_: object
    ) -> Completion:
        if messages[-1].content == SUMMARY_REQUEST:
            text = self.summary
        else:
            text, self.played = self.turns[self.played], self.played + 1
        ids = [*self.encode(text), self.end]
        finish = "length" if len(ids) > max_tokens else "stop"
        ids = ids[:max_tokens]
        log_probs = [-1.0 - len(self.seen) - i / 1_000 for i in range(len(ids))]
        self.seen.append((list(prompt_ids), ids, log_probs))
        return Completion(token_ids=ids, log_probs=log_probs, finish_reason=finish)


@dataclass
class Talking:
    """Answers call i with the i-th text and pays for it."""

    row: EnvRow
    texts: Sequence[str]
    tools: Sequence[Any] = ()
    steps: int = 0

    async def start(self) -> tuple[Message, ...]:
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED, reward=0.5)
        self.steps += 1
        return Observation((Message("tool", self.texts[(self.steps - 1) % len(self.texts)]),), reward=0.125)

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(transcript.final_answer == "42"))

    async def close(self) -> None:
        pass


async def play(
    how: Compaction,
    turns: Sequence[str],
    texts: Sequence[str],
    *,
    limits: EpisodeLimits = LIMITS,
    row: EnvRow = ROW,
    summary: str = "found nothing",
) -> tuple[Episode, Recorder]:
    recorder = Recorder(encode, END, turns, summary)
    chosen = episode_setup(recorder, limits, compaction=how)
    episode = await run_episode(row, make_env=lambda r: Talking(r, texts), setup=chosen, request_id="r")
    return episode, recorder


def assert_every_trained_token_had_the_context_that_the_engine_saw(episode: Episode, recorder: Recorder) -> None:
    trained = []
    for row in episode.trajectories:
        ids, start = row.token_ids, len(row.prompt_ids)
        assert len(ids) <= BUDGET and row.response_mask[-1] == 1
        for at, mask in enumerate(row.response_mask):
            if mask:
                trained.append((ids[: start + at], row.response_ids[at], row.log_probs[at]))
    sampled = [
        (prompt + ids[:i], token, log_prob)
        for prompt, ids, log_probs in recorder.seen
        for i, (token, log_prob) in enumerate(zip(ids, log_probs, strict=True))
    ]
    assert trained == sampled


def prompts(episode: Episode) -> list[str]:
    return [decode(row.prompt_ids) for row in episode.trajectories]


CALLS = [f"call:{name}" for name in "abcdefgh"]


@pytest.mark.parametrize("how", [DROP, SUMMARISE], ids=["drop", "summary"])
async def test_no_row_exceeds_the_budget_and_no_token_is_trained_in_another_context(how: Compaction) -> None:
    texts = ["x" * 250, "y" * 310, "z" * 90, "w" * 400]
    episode, recorder = await play(how, [*CALLS, "42"], texts)
    assert episode.stop_reason is StopReason.ANSWERED and episode.reward.outcome == 1.0
    assert len(episode.trajectories) >= 3
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)
    assert len(episode.actions) == 9 and episode.numbers()["rows"] == len(episode.trajectories)


@pytest.mark.parametrize("how", [DROP, SUMMARISE], ids=["drop", "summary"])
async def test_turns_are_counted_on_over_the_rows_and_each_reward_lies_in_the_row_of_its_turn(how: Compaction) -> None:
    episode, _ = await play(how, [*CALLS[:6], "42"], ["x" * 250, "y" * 310])
    turns = [row.turn_ids for row in episode.trajectories]
    assert all(max(before) < min(after) for before, after in pairwise(turns))
    rewards = episode.token_rewards()
    # Six calls earn an eighth each, the answer a half and the outcome.
    assert [sum(row) for row in rewards[:-1]] == [
        0.125 * sum(action.turn in set(ids) and bool(action.tool_calls) for action in episode.actions)
        for ids in turns[:-1]
    ]
    assert sum(map(sum, rewards)) == 6 * 0.125 + 0.5 + 1.0
    assert rewards[-1][-1] == 1.5
    for row, values in zip(episode.trajectories, rewards, strict=True):
        assert all(mask for mask, value in zip(row.response_mask, values, strict=True) if value)


async def test_old_observations_become_a_note_and_the_last_ones_stay() -> None:
    how = replace(DROP, keep_last=2, min_room_tokens=450)
    episode, _ = await play(how, [*CALLS[:4], "42"], ["first " * 40, "second " * 30, "third", "fourth"])
    first, second = prompts(episode)
    assert first == "<user>question<assistant>"
    assert (
        second
        == f"<user>question<assistant><tool>{REMOVED}<assistant><tool>{'second ' * 30}<assistant><tool>third<assistant>"
    )


def test_the_prompt_keeps_its_observations() -> None:
    shown = [Message("user", "do"), Message("assistant", "a"), Message("tool", "example"), Message("user", "task")]
    played = [Message("assistant", "b"), Message("tool", "old"), Message("assistant", "c"), Message("user", "new")]
    kept = drop_observations([*shown, *played], after=4, keep_last=1)
    assert [m.content for m in kept] == ["do", "a", "example", "task", "b", REMOVED, "c", "new"]
    assert [m.content for m in drop_observations(played, after=0, keep_last=0)] == ["b", REMOVED, "c", REMOVED]
    assert drop_observations(played, after=0, keep_last=5) == played


async def test_a_summary_is_a_turn_that_is_trained_and_the_next_row_knows_nothing_else() -> None:
    episode, recorder = await play(SUMMARISE, [*CALLS[:3], "42"], ["x" * 300, "y" * 310, "z"])
    first, second = episode.trajectories
    assert decode(first.response_ids).endswith(f"<user>{SUMMARY_REQUEST}<assistant>found nothing$")
    assert prompts(episode)[1] == f"<user>question\n\n{SUMMARY_HEADER}\nfound nothing<assistant>"
    assert first.response_mask[-14:] == [1] * 14 and first.turn_ids[-1] == 2
    assert second.turn_ids[0] == 3
    assert [action.turn for action in episode.actions] == [0, 1, 3, 4]
    assert episode.numbers()["summaries"] == 1.0
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)


async def test_a_second_summary_takes_the_place_of_the_first() -> None:
    episode, _ = await play(SUMMARISE, [*CALLS[:6], "42"], ["x" * 300])
    assert len(episode.trajectories) > 3
    assert {prompt.count("found nothing") for prompt in prompts(episode)[1:]} == {1}


async def test_a_prompt_with_examples_stays_whole() -> None:
    row = EnvRow(prompt=(Message("user", "do"), Message("assistant", "done"), Message("user", "the task")))
    episode, _ = await play(SUMMARISE, [*CALLS[:3], "42"], ["x" * 300], row=row)
    assert prompts(episode)[1].startswith(f"<user>do<assistant>done<user>the task\n\n{SUMMARY_HEADER}\n")


async def test_an_observation_that_the_summary_had_no_room_for_is_shown_after_it() -> None:
    episode, recorder = await play(SUMMARISE, [*CALLS[:2], "42"], ["x" * 400, "news " * 60])
    first, second = episode.trajectories
    assert "news" not in decode(first.response_ids)
    assert prompts(episode)[1].endswith(f"found nothing\n\n{UNSEEN_HEADER}\n{'news ' * 60}<assistant>")
    assert second.response_mask[-1] == 1
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)
    told = [message.content for message in episode.messages]
    assert told.index("news " * 60) < told.index(SUMMARY_REQUEST) < told.index("found nothing")


async def test_a_summary_is_cut_at_its_budget() -> None:
    episode, _ = await play(SUMMARISE, [*CALLS[:3], "42"], ["x" * 300], summary="s" * 500)
    assert prompts(episode)[1].endswith("\n" + "s" * 100 + "<assistant>")


@pytest.mark.parametrize("how", [DROP, SUMMARISE], ids=["drop", "summary"])
async def test_the_last_row_goes_on_until_it_is_full(how: Compaction) -> None:
    how = replace(how, max_rows=2)
    episode, recorder = await play(how, [*CALLS, *CALLS], ["x" * 250])
    assert len(episode.trajectories) == 2 and episode.stop_reason is StopReason.CONTEXT_FULL
    assert len(episode.trajectories[1].token_ids) > BUDGET - how.needed_tokens
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)


async def test_what_cannot_be_shortened_ends_with_a_full_context() -> None:
    row = EnvRow(prompt=(Message("user", "long " * 150),))
    episode, recorder = await play(DROP, [*CALLS], ["x" * 60], row=row)
    assert episode.stop_reason is StopReason.CONTEXT_FULL and len(episode.trajectories) == 1
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)


async def test_when_no_more_rows_are_allowed_the_reserve_is_kept_for_the_answer() -> None:
    limits = replace(LIMITS, answer_reserve_tokens=100, final_notice="last turn")
    episode, recorder = await play(replace(DROP, max_rows=1), [*CALLS[:3], "42"], ["x" * 300], limits=limits)
    assert episode.stop_reason is StopReason.ANSWERED and episode.reward.outcome == 1.0
    assert "<user>last turn<assistant>42$" in decode(episode.trajectories[0].response_ids)
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)


async def test_a_void_episode_is_void_in_all_its_rows() -> None:
    class Dying(Talking):
        async def step(self, action: Action) -> Observation:
            if self.steps == 5:
                raise ConnectionError("gone")
            return await super().step(action)

    recorder = Recorder(encode, END, CALLS)
    chosen = episode_setup(recorder, LIMITS, compaction=DROP)
    episode = await run_episode(ROW, make_env=lambda r: Dying(r, ["x" * 300]), setup=chosen, request_id="r")
    assert episode.is_void and len(episode.trajectories) > 1
    assert not any(any(row.response_mask) for row in episode.trajectories)
    assert not any(any(values) for values in episode.token_rewards())


@pytest.mark.parametrize("strategy", ["drop_observations", "summary"])
async def test_it_holds_with_the_chat_template_of_a_real_tokenizer(tiny_chat: Chat, strategy: Any) -> None:
    tokenizer, codec = tiny_chat

    class Python:
        name, schema = "python", SCHEMA

        async def call(self, arguments: Any) -> ToolResult:
            return ToolResult(str(arguments["code"]) * 20)

    class Env(ToolEnv):
        async def score(self, transcript: Transcript) -> Reward:
            return Reward(1.0)

    def call(code: str) -> str:
        body = json.dumps({"name": "python", "arguments": {"code": code}}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"

    turns = [call("print(1)\n"), "Again: " + call("é 你好 🙂"), call("x" * 20), call("1 + 1"), "42"]
    recorder = Recorder(tokenizer.encode, tokenizer.eos_token_id, turns)
    how = Compaction(strategy=strategy, keep_last=1, min_room_tokens=200, max_summary_tokens=80, max_rows=9)
    chosen = EpisodeSetup(policy=recorder, codec=codec, tokenizer=tokenizer, limits=LIMITS, compaction=how)
    row = EnvRow(prompt=(Message("system", "Be brief."), Message("user", "What is 6*7?")))
    episode = await run_episode(row, make_env=lambda r: Env(r, [Python()]), setup=chosen, request_id="r")
    assert episode.stop_reason is StopReason.ANSWERED, episode.error
    assert len(episode.trajectories) >= 2
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({}, "'strategy'"),
        ({"strategy": "forget"}, "drop_observations"),
        ({"strategy": "summary", "max_row": 3}, "max_row"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_settings(Compaction, bad, section="compaction")


async def test_a_shortened_conversation_that_cannot_be_rendered_is_a_failure_of_the_policy() -> None:
    class Fragile(CharCodec):
        async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Any]) -> list[int]:
            if len(messages) > 1:
                raise ValueError("roles must alternate")
            return await super().encode_prompt(messages, tools)

    chosen = EpisodeSetup(
        policy=Recorder(encode, END, CALLS),  # type: ignore[arg-type]
        codec=Fragile(),  # type: ignore[arg-type]
        tokenizer=CharTokenizer(),
        limits=LIMITS,
        compaction=DROP,
    )
    episode = await run_episode(ROW, make_env=lambda r: Talking(r, ["x" * 300]), setup=chosen, request_id="r")
    assert episode.stop_reason is StopReason.POLICY_FAULT and "roles must alternate" in (episode.error or "")
    assert any(episode.trajectories[-1].response_mask) and not episode.retries


@pytest.mark.parametrize("how", [DROP, SUMMARISE], ids=["drop", "summary"])
async def test_a_sample_has_the_turns_of_the_whole_episode_and_counts_what_was_summarised(how: Compaction) -> None:
    episode, _ = await play(how, [*CALLS[:6], "42"], ["x" * 250, "y" * 310])
    sample = to_sample(episode, ROW, id="a")
    assert sample.prompt == ROW.prompt and [turn.index for turn in sample.turns] == [a.turn for a in episode.actions]
    assert [bool(turn.observations) for turn in sample.turns] == [True] * 6 + [False]
    assert sample.turns[0].observations[0].startswith("x") and sample.final_answer == "42"
    assert sample.num_model_tokens == episode.numbers()["model_tokens"]


class _Judged(Talking):
    """Answers `search` with the next text; a verdict of `bad` drops it."""

    async def step(self, action: Action) -> Observation:
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED)
        call_id = f"call_{action.turn}"
        if action.tool_calls[0].name == "search":
            self.last, self.steps = call_id, self.steps + 1
            return Observation((Message("tool", self.texts[self.steps - 1], call_id=call_id),), reward=0.125)
        dropped = (self.last,) if action.tool_calls[0].name == "bad" else ()
        return Observation((Message("tool", "noted", call_id=call_id),), dropped_calls=dropped)


async def judge(*turns: str, limits: EpisodeLimits = LIMITS) -> tuple[Episode, Recorder]:
    recorder = Recorder(encode, END, turns)
    env: Any = lambda row: _Judged(row, ["o1", "o2", "o3"])  # noqa: E731
    return await run_episode(ROW, make_env=env, setup=episode_setup(recorder, limits), request_id="r"), recorder


SEARCH, GOOD, BAD = "call:search", "call:good", "call:bad"


async def test_what_is_judged_bad_leaves_the_context_and_the_rest_stays() -> None:
    episode, recorder = await judge(SEARCH, GOOD, SEARCH, BAD, SEARCH, GOOD, "42")  # vectors.json, V-RESEEK
    seen = decode(recorder.seen[-1][0])
    assert [name for name in ("o1", "o2", "o3") if name in seen] == ["o1", "o3"] and seen.count(DROPPED) == 1
    assert episode.reward.outcome == 1.0 and len(episode.trajectories) == 2
    told = [message.content for message in episode.messages if message.role == "tool"]
    assert told == ["o1", "noted", "o2", "noted", "o3", "noted"]  # scorers still see all of it


async def test_a_verdict_is_trained_with_the_result_that_it_judges() -> None:
    episode, recorder = await judge(SEARCH, GOOD, SEARCH, BAD, SEARCH, BAD, "42")
    assert_every_trained_token_had_the_context_that_the_engine_saw(episode, recorder)
    rows = episode.trajectories
    assert len(rows) == 3 and all("o2" in decode(row.token_ids) for row in rows[:1])
    assert "o2" not in decode(rows[1].token_ids) and "o3" in decode(rows[1].token_ids)
    assert "o3" not in decode(rows[2].token_ids)
    assert [sum(row) for row in episode.token_rewards()] == [0.25, 0.125, 1.0]  # two searches, one, the answer


async def test_the_notice_of_the_last_turn_survives_a_dropped_result() -> None:
    limits = replace(LIMITS, max_turns=3, answer_reserve_tokens=50, final_notice="last: {tokens}")
    episode, recorder = await judge(SEARCH, BAD, "42", limits=limits)
    assert decode(recorder.seen[-1][0]).endswith("<user>last: 50<assistant>")
    assert (episode.reward.outcome, episode.numbers()["final_notices"]) == (1.0, 1.0)
