"""Text worlds in the loop, with a fake world: actions, refusals, the end, experts, and rows of other versions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from verl_agentic import ConfigError, DataError, EnvRow, Episode, Message, StopReason, run_episode, scripted
from verl_agentic.bridges.task_rows import draw_rows
from verl_agentic.bridges.text_world import TextWorldEnv, WorldTurn, act, expert_policy, solved_row
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits

LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=30_000, max_turns=8)


class Stairs:
    """A staircase of `height` steps; `jump` at the top wins, elsewhere it falls down."""

    actions = ("wait", "up", "jump")

    def __init__(self, height: int) -> None:
        self.height, self.at, self.closed = height, 0, 0

    def reset(self) -> str:
        return f"Climb {self.height} steps, then jump."

    def step(self, action: str) -> WorldTurn:
        if action not in self.actions:
            return WorldTurn(text="no such action", is_valid=False)
        self.at += action == "up"
        is_top = self.at == self.height
        return WorldTurn(
            text=f"at {self.at}", is_over=action == "jump", is_won=is_top and action == "jump", info={"at": self.at}
        )

    def expert(self) -> str | None:
        return "jump" if self.at == self.height else "up" if self.at < self.height else None

    def random_action(self, rng: random.Random) -> str:
        return rng.choice(self.actions)

    def close(self) -> None:
        self.closed += 1


def row_of(height: int) -> EnvRow:
    row = solved_row(Stairs(height), bridge="stairs", task="stairs", number=height, max_steps=20)
    assert row is not None
    return row


async def play(tiny_chat: Any, height: int, *turns: str | Message) -> tuple[Episode, Stairs]:
    tokenizer, codec = tiny_chat
    world, left = Stairs(height), list(turns)

    def next_text(messages: Any) -> str:
        turn = left.pop(0) if left else ""
        return turn if isinstance(turn, str) else codec.render_action(turn)

    setup = scripted(next_text, codec=codec, tokenizer=tokenizer, limits=LIMITS)
    episode = await run_episode(
        row_of(height), make_env=lambda row: TextWorldEnv(row, world), setup=setup, request_id="r"
    )
    return episode, world


async def test_the_expert_wins_and_the_world_is_closed_once(tiny_chat: Any) -> None:
    episode, world = await play(tiny_chat, 2, act("up"), act("up"), act("jump"))
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ENV_DONE, 1.0)
    assert world.closed == 1 and episode.reward.info == {"at": 2}


async def test_an_end_without_success_scores_0(tiny_chat: Any) -> None:
    episode, _ = await play(tiny_chat, 2, act("up"), act("jump"))
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ENV_DONE, 0.0)


async def test_a_turn_without_an_action_ends_the_episode(tiny_chat: Any) -> None:
    episode, _ = await play(tiny_chat, 2, act("up"), "I am thinking.")
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.NO_ACTION, 0.0)


async def test_an_unknown_action_is_counted_and_the_episode_goes_on(tiny_chat: Any) -> None:
    episode, _ = await play(tiny_chat, 1, act("fly"), act("up"), act("jump"))
    assert episode.reward.outcome == 1.0 and episode.info["invalid_actions"] == 1.0


async def test_calls_after_the_end_of_the_same_turn_do_nothing(tiny_chat: Any) -> None:
    both = replace(act("jump"), tool_calls=(*act("jump").tool_calls, *act("up").tool_calls))
    episode, world = await play(tiny_chat, 1, both)
    assert (episode.stop_reason, episode.reward.outcome, world.at) == (StopReason.ENV_DONE, 0.0, 0)


async def test_a_row_of_another_version_is_refused() -> None:
    with pytest.raises(DataError, match="Climb"):
        await TextWorldEnv(row_of(3), Stairs(4)).start()


def test_an_expert_continues_the_conversation_of_another_policy() -> None:
    next_message = expert_policy(lambda: Stairs(3))
    assert next_message([act("up"), act("wait"), act("up")]) == act("up")
    assert next_message([act("up"), act("wait"), act("up"), act("up")]) == act("jump")
    assert next_message([]) == act("up"), "a shorter conversation is another one"


def test_slips_and_unskilled_episodes_are_random() -> None:
    rng = random.Random(0)
    skilled = [expert_policy(lambda: Stairs(9), rng=rng, skilled=0.5)([]) for _ in range(200)]
    slipped = [expert_policy(lambda: Stairs(9), rng=rng, slip=0.3)([]) for _ in range(200)]
    for messages, share in ((skilled, 0.5), (slipped, 0.7)):
        expected = share + (1 - share) / 3
        assert sum(message == act("up") for message in messages) / 200 == pytest.approx(expected, abs=0.1)


def test_a_world_that_its_expert_does_not_solve_gives_no_row() -> None:
    assert solved_row(Stairs(30), bridge="stairs", task="stairs", number=0, max_steps=20) is None
    assert row_of(4).extra["expert_actions"] == 5


def make(split: Any, count: int, task: str | None = None, seed: int = 0) -> list[EnvRow]:
    def draw(name: str, number: int) -> EnvRow | None:
        return None if number % 3 == 0 else EnvRow(prompt=(Message("user", f"{name} {number // 5 % 50}"),))

    return draw_rows(("a", "b"), draw, task=task, split=split, count=count, seed=seed)


def test_rows_differ_and_the_splits_share_none() -> None:
    train, test = make("train", 40), make("test", 8)
    texts = [[row.prompt[0].content for row in rows] for rows in (train, test)]
    assert len(set(texts[0])) == 40 and len(set(texts[1])) == 8 and not set(texts[0]) & set(texts[1])
    assert [text[0] for text in texts[0][:4]] == ["a", "b", "a", "b"]
    assert make("train", 40) == train and make("train", 40, seed=1) != train
    assert {row.prompt[0].content[0] for row in make("train", 5, "b")} == {"b"}


def test_too_few_rows_and_unknown_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="hardly more than"):
        make("train", 200)
    with pytest.raises(ConfigError, match="'c'"):
        make("train", 1, "c")
    with pytest.raises(ConfigError, match="split"):
        make("dev", 1)


def test_rows_whose_prompts_hide_the_problem_differ_by_their_numbers() -> None:
    numbers: dict[Any, list[int]] = {"train": [], "test": []}
    for split, drawn in numbers.items():

        def draw(name: str, number: int, drawn: list[int] = drawn) -> EnvRow:
            drawn.append(number)
            return EnvRow(prompt=(Message("user", "Guess my number."),))

        assert len(draw_rows(("a",), draw, task=None, split=split, count=30, seed=0, is_hidden=True)) == 30
    assert len(set(numbers["train"])) == len(set(numbers["test"])) == 30
    assert not set(numbers["train"]) & set(numbers["test"])


async def test_a_world_that_fails_ends_the_episode_and_is_lost(tiny_chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Stairs, action: str) -> WorldTurn:
        raise ValueError("the reward is no number")

    monkeypatch.setattr(Stairs, "step", fail)
    tokenizer, codec = tiny_chat
    turns = [act("up"), act("jump")]
    setup = scripted(
        lambda messages: codec.render_action(turns.pop(0)), codec=codec, tokenizer=tokenizer, limits=LIMITS
    )
    row = EnvRow(prompt=(Message("user", "Climb 1 steps, then jump."),), ground_truth={}, data_source="stairs")
    episode = await run_episode(row, make_env=lambda row: TextWorldEnv(row, Stairs(1)), setup=setup, request_id="r")
    assert episode.stop_reason is StopReason.ENV_DONE and not episode.is_void and episode.reward.outcome == 0.0
    assert len(turns) == 1, "no action follows"
