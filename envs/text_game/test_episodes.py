"""Text games as episodes: what the policy is told, what it earns, how an episode ends."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Action, Message, Observation, StopReason, ToolCall
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import read_rows, write_rows

PACKAGE = load_env_package("text_game")
GAMES = ("frozen_lake", "sokoban", "quest", "bandit")
LAKE = ["P___", "_O_O", "___O", "O__G"]
LAKE_WAY = ["Down", "Down", "Right", "Right", "Down", "Right"]
LEVEL = ["######", "#____#", "#@$__#", "#____#", "#___.#", "######"]


def make_rows(**options: Any) -> list[EnvRow]:
    assert PACKAGE.make_rows is not None
    return PACKAGE.make_rows(**{"split": "train", "count": 1, "seed": 0, **options})


def lake_row(board: Sequence[str] = LAKE, **extra: Any) -> EnvRow:
    spec = {"game": "frozen_lake", "board": list(board)}
    return EnvRow(prompt=(Message("user", "play"),), ground_truth=spec, extra=extra)


def level_row(board: Sequence[str] = LEVEL) -> EnvRow:
    return EnvRow(prompt=(Message("user", "play"),), ground_truth={"game": "sokoban", "board": list(board)})


async def started(row: EnvRow, **config: Any) -> Any:
    env = PACKAGE.make_env(row, **config)
    assert await env.start() == row.prompt
    return env


def acting(*arguments: Mapping[str, Any]) -> Action:
    calls = tuple(ToolCall("act", item, f"c{i}") for i, item in enumerate(arguments))
    return Action(turn=0, text="", content="", tool_calls=calls)


async def act(env: Any, *actions: str) -> Observation:
    return await env.step(acting(*({"action": action} for action in actions)))


async def outcome(env: Any) -> float:
    return (await env.score(Transcript(messages=(), actions=(), stop_reason=StopReason.ENV_DONE))).total


async def play_solution(row: EnvRow, env: Any) -> list[Observation]:
    """Plays the solution to its end."""
    assert PACKAGE.gold is not None
    next_message, messages, seen = PACKAGE.gold(row), list(row.prompt), []
    while not seen or seen[-1].stop is None:
        message = next_message(messages)
        assert message.tool_calls and len(seen) < 100, "the solution has given up, or never ends"
        seen.append(await env.step(Action(turn=0, text="", content="", tool_calls=message.tool_calls)))
        messages += [message, *seen[-1].messages]
    return seen


@pytest.mark.sample(1)
@pytest.mark.parametrize("game", GAMES)
async def test_the_solution_wins_200_games_in_the_fewest_turns_for_an_outcome_alone(game: str) -> None:
    for row in make_rows(game=game, count=200):
        env = await started(row)
        seen = await play_solution(row, env)
        assert (seen[-1].stop, await outcome(env)) == (StopReason.ENV_DONE, 1.0)
        assert len(seen) == row.extra["optimal_actions"] == sum(o.info["moves"] for o in seen)
        assert not any(o.reward or o.info.get("invalid_actions") or o.info["tool_errors"] for o in seen)


@pytest.mark.parametrize("options", [{"slip": 2 / 3}, {"actions_per_turn": 3}, {"style": "compact"}])
async def test_the_solution_wins_on_slippery_ice_with_several_actions_a_turn_and_in_the_compact_style(
    options: dict[str, Any],
) -> None:
    most = options.get("actions_per_turn", 1)
    for row in make_rows(count=20, seed=1, **options):
        env = await started(row)
        assert len(await play_solution(row, env)) == -(-row.extra["optimal_actions"] // most)
        assert await outcome(env) == 1.0


async def test_the_solution_goes_on_from_what_another_policy_has_played() -> None:
    assert PACKAGE.gold is not None
    row = lake_row()
    next_message = PACKAGE.gold(row)
    refused = ToolCall("act", {"action": "Right"}, error="not carried out", error_kind="too_many")
    said = [
        Message("assistant", "", tool_calls=(refused, ToolCall("act", {"action": "Down"}))),
        Message("assistant", "", tool_calls=(ToolCall("act", {"action": "Up"}), ToolCall("look", {}))),
        Message("assistant", "", tool_calls=(ToolCall("act", {"action": "fly"}),)),
        Message("assistant", "", tool_calls=tuple(ToolCall("act", {"action": a}) for a in ("Down", "Down"))),
    ]
    # Down, Up, Down: the second call of the last turn was one too many.
    assert next_message([*row.prompt, *said]).tool_calls[0].arguments == {"action": "Down"}
    over = [Message("assistant", "", tool_calls=(ToolCall("act", {"action": a}),)) for a in LAKE_WAY]
    assert next_message([*row.prompt, *over]) == Message("assistant", "The game is over.")


# Rewards


@pytest.mark.parametrize("game", GAMES)
async def test_the_turns_of_a_game_that_is_won_sum_to_the_dense_reward(game: str) -> None:
    for row in make_rows(game=game, count=10):
        env = await started(row, dense_reward=0.4)
        rewards = [o.reward for o in await play_solution(row, env)]
        # The shortest solution makes the same progress with every action.
        assert rewards == pytest.approx([0.4 / row.extra["optimal_actions"]] * len(rewards))
        assert await outcome(env) == 1.0


async def test_a_turn_earns_its_progress_and_a_step_back_loses_it() -> None:
    env = await started(lake_row(), dense_reward=0.6)  # 6 steps: 0.1 each
    rewards = [(await act(env, move)).reward for move in ("Up", "Right", "Left", "Down", "Down", "Up", "Right")]
    # At the border; nearer by one, and back; two steps on, one back, and into the hole, which takes all.
    assert rewards == pytest.approx([0, 0.1, -0.1, 0.1, 0.1, -0.1, -0.1])
    assert await outcome(env) == 0.0


async def test_going_farther_than_the_start_earns_nothing_and_costs_nothing() -> None:
    env = await started(lake_row(["__P_G"]), dense_reward=1.0)
    rewards = [(await act(env, move)).reward for move in ("Left", "Left", "Right", "Right", "Right", "Right")]
    assert rewards == pytest.approx([0, 0, 0, 0, 0.5, 0.5])


@pytest.mark.parametrize("game", GAMES)
async def test_the_turns_of_any_game_sum_to_its_last_progress(game: str) -> None:
    ends: Counter[str] = Counter()
    for number, row in enumerate(make_rows(game=game, count=12, seed=2, slip=0.0) if game == "frozen_lake"
                                 else make_rows(game=game, count=12, seed=2)):  # fmt: skip
        env, rng = await started(row, dense_reward=1.0), random.Random(number)
        total, stop = 0.0, None
        for _ in range(9):
            if stop is None:
                legal = env._tool.game.legal(env._tool.state)
                observation = await act(env, rng.choice(legal))
                total, stop = total + observation.reward, observation.stop
        left = env._tool.game.distance(env._tool.state)
        progress = 0.0 if left is None else max(0.0, 1 - left / row.extra["optimal_actions"])
        assert total == pytest.approx(progress)
        ends["dead" if left is None else "open"] += 1
    assert ends["dead"] or game == "quest"


# Ends


async def test_a_hole_ends_the_episode_with_nothing() -> None:
    env = await started(lake_row())
    assert (await act(env, "Down")).stop is None
    last = await act(env, "Right")
    assert (last.stop, last.info["dead_ends"], await outcome(env)) == (StopReason.ENV_DONE, 1.0, 0.0)


async def test_a_deadlock_ends_the_episode_when_it_arises() -> None:
    env = await started(level_row())
    assert [(await act(env, move)).stop for move in ("Down", "Right")] == [None, None]
    last = await act(env, "Up")  # pushes the box to a wall without a target
    assert (last.stop, last.info["dead_ends"], await outcome(env)) == (StopReason.ENV_DONE, 1.0, 0.0)


async def test_the_goal_ends_the_episode_in_the_middle_of_a_turn() -> None:
    env = await started(lake_row(actions_per_turn=9))
    last = await act(env, " || ".join([*LAKE_WAY, "Left", "fly"]))
    assert (last.stop, last.info["moves"], await outcome(env)) == (StopReason.ENV_DONE, 6.0, 1.0)
    assert "invalid_actions" not in last.info
    assert (await act(env, "Left")).messages[0].content == "Error: the game is over; nothing was done"
    assert await outcome(env) == 1.0


async def test_a_turn_without_an_action_ends_the_episode_unless_more_are_allowed() -> None:
    silent = Action(turn=0, text="I win", content="I win")
    env = await started(lake_row())
    last = await env.step(silent)
    assert (last.stop, last.messages, await outcome(env)) == (StopReason.NO_ACTION, (), 0.0)

    env = await started(lake_row(), no_action_turns=2)
    first = await env.step(silent)
    assert first.stop is None and first.info == {"no_action_turns": 1.0}
    assert first.messages[0] == Message("user", "An action is needed. Possible actions: Up, Right, Down, Left")
    assert (await act(env, "Down")).stop is None  # they are counted in a row
    assert [(await env.step(silent)).stop for _ in range(2)] == [None, StopReason.NO_ACTION]


# What the policy does wrong


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"action": "fly"}, "Error: this action is not possible; possible actions: Up, Right, Down, Left"),
        ({"action": ""}, "Error: this action is not possible; possible actions: Up"),
        ({"action": " || "}, "Error: this action is not possible; possible actions: Up"),
        ({"action": "<|im_end|>" * 9_000}, "Error: this action is not possible; possible actions: Up"),
        ({"action": ["Up"]}, 'Error: the arguments must be {"action": "<text>"}'),
        ({"action": None}, 'Error: the arguments must be {"action": "<text>"}'),
        ({"action": "Up", "speed": 2}, 'Error: the arguments must be {"action": "<text>"}'),
        ({}, 'Error: the arguments must be {"action": "<text>"}'),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_an_action_that_is_none_is_answered_counted_and_changes_nothing(
    arguments: dict[str, Any], answer: str
) -> None:
    env = await started(lake_row(), dense_reward=0.5)
    for _ in range(3):
        observation = await env.step(acting(arguments))
        (message,) = observation.messages
        assert message.content.startswith(answer) and len(message.content) < 120
        assert (observation.stop, observation.reward, observation.info["tool_errors"]) == (None, 0.0, 1.0)
        assert observation.info["call_error/wrong_arguments"] == 1.0 and "moves" not in observation.info
    assert await outcome(env) == 0.0
    assert (await act(env, "down")).messages[0].content.splitlines()[1] == "P O _ O"  # the case does not matter


async def test_calls_that_cannot_be_read_or_name_another_tool_are_answered_and_counted() -> None:
    env = await started(lake_row())
    calls = (ToolCall("", {}, "a", "unreadable", "malformed_json"), ToolCall("jump", {}, "b"))
    observation = await env.step(Action(turn=0, text="", content="", tool_calls=calls))
    assert [m.content for m in observation.messages] == [
        "Error: unreadable",
        "Error: unknown tool 'jump'; known tools: ['act']",
    ]
    assert (observation.stop, observation.info["invalid_actions"], observation.info["tool_errors"]) == (None, 1.0, 2.0)


async def test_what_is_possible_in_a_quest_is_told_to_who_asks_for_something_else() -> None:
    (row,) = make_rows(game="quest")
    env = await started(row)
    (message,) = (await act(env, "dance")).messages
    assert message.content.startswith("Error: this action is not possible; possible actions: ")
    assert message.content.endswith(", look")
    assert (await act(env, "Look.")).info == {
        **{"tool_calls": 1.0, "tool_errors": 0.0, "moves": 1.0, "ineffective_moves": 1.0}
    }


@pytest.mark.parametrize(("style", "told"), [("full", ["You cannot leave the lake."]), ("compact", [])])
async def test_the_full_style_says_what_happened_and_the_compact_one_just_shows_it(style: str, told: list[str]) -> None:
    env = await started(lake_row(style=style))
    observation = await act(env, "Up")
    assert observation.messages[0].content.splitlines()[:-4] == told
    assert observation.info["ineffective_moves"] == 1.0


# Several actions


async def test_actions_are_played_in_order_up_to_the_cap() -> None:
    env = await started(lake_row(actions_per_turn=2))
    observation = await act(env, "Down || Down || Right")
    assert observation.messages[0].content == (
        "Error: only 2 actions a turn; the rest was not done\n_ _ _ _\n_ O _ O\nP _ _ O\nO _ _ G"
    )
    assert observation.info == {
        **{"tool_calls": 1.0, "tool_errors": 1.0, "call_error/too_many": 1.0},
        **{"moves": 2.0, "surplus_actions": 1.0},
    }
    assert (await act(env, "Right||Right")).messages[0].content.splitlines()[2] == "_ _ P O"


async def test_an_action_that_is_not_possible_ends_the_list_but_not_what_was_done() -> None:
    env = await started(lake_row(actions_per_turn=4))
    observation = await act(env, "Down || jump || Down")
    assert observation.messages[0].content.splitlines() == [
        "Error: this action is not possible; possible actions: Up, Right, Down, Left",
        *["_ _ _ _", "P O _ O", "_ _ _ O", "O _ _ G"],
    ]
    assert observation.info["moves"] == 1.0 and observation.info["invalid_actions"] == 1.0


async def test_calls_of_one_turn_share_the_cap_and_are_played_in_order() -> None:
    env = await started(lake_row(actions_per_turn=2, style="compact"))
    observation = await act(env, "Down", "Down", "Right")
    assert [m.call_id for m in observation.messages] == ["c0", "c1", "c2"]
    assert [m.content for m in observation.messages] == [
        "____\nPO_O\n___O\nO__G",
        "____\n_O_O\nP__O\nO__G",
        "Error: only 2 actions a turn; the rest was not done",
    ]


async def test_the_schema_names_the_actions_where_they_are_always_the_same() -> None:
    def argument(**options: Any) -> dict[str, Any]:
        (row,) = make_rows(**options)
        return PACKAGE.make_env(row).tools[0].schema["function"]["parameters"]["properties"]["action"]

    assert argument(game="sokoban") == {"type": "string", "enum": ["Up", "Right", "Down", "Left"]}
    assert argument(game="quest") == {"type": "string"}
    several = argument(game="sokoban", actions_per_turn=3)
    assert "enum" not in several
    assert several["description"] == "Up to 3 actions of Up, Right, Down, Left, separated by ||."


# Rows


def boards(rows: Sequence[EnvRow]) -> set[str]:
    return {json.dumps(row.ground_truth["board"]) for row in rows}


@pytest.mark.parametrize(
    "options", [{"game": "frozen_lake", "size": 3, "placement": "random"}, {"game": "sokoban"}, {"game": "quest"}, {}]
)
def test_train_and_test_share_neither_games_nor_seeds_and_no_game_comes_twice(options: dict[str, Any]) -> None:
    splits = {}
    for split, count in (("train", 40), ("test", 8)):
        rows = make_rows(split=split, count=count, **options)
        rows += make_rows(split=split, count=count, seed=1, **options)
        for part in (rows[:count], rows[count:]):
            assert len({row.extra["task_id"] for row in part}) == count
            assert len({json.dumps(row.ground_truth) for row in part}) == count
        splits[split] = rows
    train, test = splits["train"], splits["test"]
    seeds = [{int(row.extra["task_id"].rpartition("-")[2]) % 5 for row in part} for part in (train, test)]
    assert seeds[0] <= {1, 2, 3, 4} and seeds[1] == {0}  # every fifth seed is for tests
    assert not {json.dumps(r.ground_truth) for r in train} & {json.dumps(r.ground_truth) for r in test}


def test_luck_does_not_make_a_board_new() -> None:
    train = make_rows(game="frozen_lake", size=3, count=30, slip=0.5)
    test = make_rows(game="frozen_lake", size=3, count=6, slip=0.25, split="test")
    assert len(boards(train)) == 30 and not boards(train) & boards(test)


@pytest.mark.slow
def test_rows_follow_from_their_arguments_in_every_process() -> None:
    rows = make_rows(count=12, seed=3)
    assert rows == make_rows(count=12, seed=3) != make_rows(count=12, seed=4)
    code = (
        "import json; from verl_agentic.episode.env_package import load_env_package as load; "
        "rows = load('text_game').make_rows(split='train', count=12, seed=3); "
        "print(json.dumps([[r.ground_truth, r.prompt[0].content, dict(r.extra)] for r in rows]))"
    )
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [[r.ground_truth, r.prompt[0].content, dict(r.extra)] for r in rows]


async def test_a_row_is_all_that_is_needed_to_play(tmp_path: Path) -> None:
    rows = make_rows(count=8, slip=0.5, actions_per_turn=2, style="compact", coordinates=True)
    write_rows(rows, tmp_path / "rows.jsonl")
    for row in read_rows(tmp_path / "rows.jsonl"):
        env = await started(row)
        await play_solution(row, env)
        assert await outcome(env) == 1.0


def test_a_mix_takes_the_games_in_turn() -> None:
    rows = make_rows(count=9)
    assert [row.extra["game"] for row in rows] == [GAMES[i % 4] for i in range(9)]
    assert {row.data_source for row in rows} == {"text_game"}
    two = make_rows(count=5, game=["quest", "sokoban"])
    assert [row.ground_truth["game"] for row in two] == ["quest", "sokoban", "quest", "sokoban", "quest"]


def test_the_prompt_shows_the_position_and_in_the_full_style_the_rules() -> None:
    (full,) = make_rows(game="frozen_lake", actions_per_turn=3)
    assert full.prompt[0].content == (
        "Cross the frozen lake to the goal without stepping into a hole.\n"
        "Symbols: P you, _ ice, O hole, G goal.\n"
        "Actions: Up, Right, Down, Left.\n"
        "You may give up to 3 actions in one turn, separated by ||.\n"
        + "\n".join(" ".join(line) for line in full.ground_truth["board"])
    )
    (compact,) = make_rows(game="frozen_lake", style="compact", actions_per_turn=3)
    assert compact.prompt == (Message("user", "\n".join(compact.ground_truth["board"])),)


def test_options_go_to_the_games_that_have_them() -> None:
    rows = make_rows(count=8, size=7, quest_length=3, arms=3)
    assert [len(row.ground_truth["board"]) for row in rows if "board" in row.ground_truth] == [7] * 4
    assert [row.extra["optimal_actions"] for row in rows if row.extra["game"] == "quest"] == [3, 3]
    assert {len(row.ground_truth["chances"]) for row in rows if row.extra["game"] == "bandit"} == {3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "split"),
        ({"game": "chess"}, "'chess'"),
        ({"game": []}, r"unknown game, got \[\]"),
        ({"game": "quest", "size": 4}, "'size'"),
        ({"style": "long"}, "style"),
        ({"actions_per_turn": 0}, "actions_per_turn"),
        ({"size": "4"}, "frozen_lake"),
        ({"game": "frozen_lake", "size": 2, "count": 9}, "frozen_lake"),
    ],
)
def test_arguments_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_rows(**options)


@pytest.mark.parametrize(
    ("row", "config", "error", "message"),
    [
        (lake_row(), {"dense_reward": 1.5}, ConfigError, "dense_reward"),
        (lake_row(), {"no_action_turns": 0}, ConfigError, "no_action_turns"),
        (lake_row(), {"max_actions_per_turn": 0}, ConfigError, "max_actions_per_turn"),
        (lake_row(style="long"), {}, ConfigError, "style"),
        (lake_row(actions_per_turn=True), {}, ConfigError, "actions_per_turn"),
        (lake_row(["PX"]), {}, DataError, "board"),
        (EnvRow(prompt=(Message("user", "?"),), ground_truth="42"), {}, DataError, "ground truth"),
        (level_row(["#####", "#@_*#", "#####"]), {}, DataError, "over"),
    ],
)
async def test_rows_and_settings_that_cannot_work_are_refused(
    row: EnvRow, config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await started(row, **config)
