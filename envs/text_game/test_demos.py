"""Demonstrations: as good as they are told to be, and always legal."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import pytest

from verl_agentic import EnvRow, Message

from .act import ActTool, Presentation
from .demos import demonstrator
from .games import load_game
from .rows import make_rows


@functools.cache
def list_lakes() -> list[EnvRow]:
    return make_rows(split="train", count=200, seed=0, game="frozen_lake", size=3, placement="random", style="compact")


def play(row: EnvRow, skilled: float, seed: int) -> tuple[str, int]:
    """Returns how a game ends, and after how many moves."""
    next_turn = demonstrator(row, rng=random.Random(seed), skilled=skilled)
    tool = ActTool(load_game(row.ground_truth), Presentation.of(row))
    messages: Sequence[Message] = row.prompt
    for moves in range(1, 30):
        turn = next_turn(messages)
        tool.begin_turn()
        assert not tool.play(turn.tool_calls[0].arguments).is_error
        messages = (*messages, turn, Message("tool", ""))
        if tool.game.status(tool.state) != "open":
            return tool.game.status(tool.state), moves
    return "open", 29


def test_the_best_player_needs_the_fewest_moves() -> None:
    assert [play(row, 1.0, 0) for row in list_lakes()] == [
        ("goal", row.extra["optimal_actions"]) for row in list_lakes()
    ]


def test_success_grows_with_skill() -> None:
    shares = [
        sum(play(row, skilled, i)[0] == "goal" for i, row in enumerate(list_lakes())) / len(list_lakes())
        for skilled in (0, 0.5, 0.9)
    ]
    assert 0 < shares[0] < shares[1] - 0.1 < shares[2] - 0.2


def test_the_same_seed_gives_the_same_moves() -> None:
    assert play(list_lakes()[0], 0.3, 5) == play(list_lakes()[0], 0.3, 5)
    assert len({play(list_lakes()[0], 0.3, seed) for seed in range(9)}) > 1


@functools.cache
def list_paths() -> list[EnvRow]:
    path = {"game": "quest", "layout": "path", "rooms": 5, "objects": 5, "quest_length": 9, "style": "compact"}
    return make_rows(split="train", count=100, seed=0, **path)


def commands(row: EnvRow, **options: float) -> list[str]:
    """Returns the first commands of a demonstration, up to 20."""
    next_turn = demonstrator(row, rng=random.Random(row.extra["task_id"]), skilled=1.0, **options)
    tool, actions = ActTool(load_game(row.ground_truth), Presentation.of(row)), []
    while tool.is_open and len(actions) < 20:
        actions.append(next_turn(()).tool_calls[0].arguments["action"])
        tool.begin_turn()
        assert not tool.play({"action": actions[-1]}).is_error
    return actions


@pytest.mark.slow
def test_a_demonstration_with_a_wrong_key_walks_to_the_lock_as_if_it_were_the_right_one() -> None:
    for row in list_paths():
        best, wrong = commands(row), commands(row, wrong_key=1.0)
        unlock = next(place for place, command in enumerate(best) if command.startswith("unlock"))
        changed = [place for place in range(unlock) if best[place] != wrong[place]]
        assert len(changed) == 1 and wrong[changed[0]].startswith("take ") and wrong[changed[0]].endswith(" key")


def test_slips_make_demonstrations_longer_and_the_solution_follows() -> None:
    lengths = [len(commands(row, slip=0.2)) for row in list_paths()]
    assert min(lengths) == 9 and 10 < sum(lengths) / len(lengths) < 20


@pytest.mark.parametrize("game", ["sokoban", "quest", "bandit"])
def test_other_games_have_demonstrations_too(game: str) -> None:
    (row,) = make_rows(split="train", count=1, seed=0, game=game)
    assert play(row, 1.0, 0)[0] == "goal"
