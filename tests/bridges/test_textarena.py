"""textarena: the list of games, opponents, partial credit, and random numbers that episodes do not share."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import subprocess
import sys
from typing import Any

import pytest

from verl_agentic.base.deadlines import in_thread
from verl_agentic.bridges.textarena import CARD, make_rows
from verl_agentic.bridges.textarena.refused import REFUSED
from verl_agentic.bridges.textarena.world import TextArenaWorld


@pytest.fixture(scope="module", autouse=True)
def registration() -> Any:
    return pytest.importorskip("textarena.envs.registration")


@pytest.mark.slow
def test_every_game_is_a_task_or_refused_with_a_reason(registration: Any) -> None:
    games = {name for name in registration.ENV_REGISTRY if not name.endswith(("-raw", "-train"))}
    refused = {name for name in games if any(re.fullmatch(pattern, name) for pattern in REFUSED)}
    assert set(CARD.tasks) | refused == games and not set(CARD.tasks) & refused


def test_partial_credit_for_a_lost_game_is_no_success() -> None:
    world = TextArenaWorld("GuessTheNumber-v0", 4)
    world.reset()
    turn = world.step("[99]")
    assert not turn.is_valid and not turn.is_over, "one invalid action is forgiven"
    secret = world._game.game_number
    for guess in [number for number in range(1, 21) if number != secret]:
        turn = world.step(str(guess))
        if turn.is_over:
            break
    assert turn.is_over and not turn.is_won and 0 < turn.info["game_reward"] < 1


def test_the_policy_is_either_player_and_sees_the_moves_of_the_other() -> None:
    first, second = (TextArenaWorld("TicTacToe-v0", seed) for seed in (4, 7))
    assert first.reset().startswith("You are Player 0") and "Player 1:" not in first._read_observations()
    assert second.reset().startswith("You are Player 1")
    turn = first.step("[4]")
    assert re.search(r"Player 1: \[\d\]", turn.text) and "Player 0: [4]" not in turn.text


@pytest.mark.slow
def test_an_opponent_never_loses_by_an_impossible_move() -> None:
    for task in ("Othello-v0-tiny", "ConnectFour-v0", "Nim-v0", "KuhnPoker-v0"):
        for seed in range(4):
            world, rng = TextArenaWorld(task, seed), random.Random(seed)
            world.reset()
            while not (turn := world.step(world.random_action(rng))).is_over:
                assert turn.is_valid
            assert not any(world._game.state.game_info[player].get("invalid_move") for player in (0, 1))


@pytest.mark.slow
async def test_parallel_games_do_not_share_random_numbers() -> None:
    def play(task: str, seed: int) -> list[str]:
        world, rng, texts = TextArenaWorld(task, seed), random.Random(seed), []
        texts.append(world.reset())
        while not (turn := world.step(world.random_action(rng))).is_over:
            texts.append(turn.text)
        return texts

    games = [(task, seed) for task in ("PigDice-v0-short", "WildTicTacToe-v0") for seed in range(3)]
    alone = [play(*game) for game in games]
    random.seed(1)
    state = random.getstate()
    together = await asyncio.gather(*(in_thread(play, *game) for game in games))
    assert together == alone and random.getstate() == state, "the global generator is left as it was"


def test_rows_have_a_line_that_wins_only_where_no_solution_is_known(capfd: Any) -> None:
    (known,) = make_rows(split="train", count=1, seed=0, task="LightsOut-v0")
    (found,) = make_rows(split="train", count=1, seed=0, task="Nim-v0")
    assert known.ground_truth["line"] == [] and len(found.ground_truth["line"]) == found.extra["expert_actions"]
    assert capfd.readouterr().out == "", "the games print nothing"


@pytest.mark.slow
def test_the_first_game_of_a_process_is_the_game_of_its_seed() -> None:
    # Secretary keeps `random.random` when it is made, so its module must have the fake by then.
    code = (
        "from verl_agentic.bridges.textarena.world import TextArenaWorld as W\n"
        "assert W('Secretary-v0', 3).reset() == W('Secretary-v0', 3).reset()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.slow
@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("seed", [4, 5])  # an odd seed makes the policy the second player
def test_two_nonsense_actions_lose_every_game(seed: int) -> None:
    actions = itertools.cycle(["nonsense", "[999]", "", "[-1 -1]", "yes"])
    for task, action in zip(CARD.tasks, actions, strict=False):
        world = TextArenaWorld(task, seed)
        world.reset()
        turns = [world.step(action)]
        while not turns[-1].is_over and len(turns) < 2:
            turns.append(world.step(action))
        assert turns[-1].is_over and not turns[-1].is_won, (task, seed)
        assert isinstance(turns[-1].info["game_reward"], float), (task, seed)


def constant_wins(task: str, action: str, *, num_games: int) -> int:
    num_won = 0
    for seed in range(1_000, 1_000 + 7 * num_games, 7):
        world = TextArenaWorld(task, seed)
        world.reset()
        turns = (world.step(action) for _ in range(64))
        last = next((turn for turn in turns if turn.is_over), None)
        num_won += last is not None and last.is_won
    return num_won


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("task", "actions"),
    [
        ("ConnectFour-v0", ("[3]", "[4]")),
        ("Surround-v0-large", ("[up]", "[down]", "[left]", "[right]")),
        ("Snake-v0-standard", ("[up]", "[left]")),
        ("LiarsDice-v0-large", ("[Call]", "[Bid: 1, 1]")),
    ],
)
def test_a_constant_action_wins_no_more_than_half_of_the_games(task: str, actions: tuple[str, ...]) -> None:
    assert max(constant_wins(task, action, num_games=20) for action in actions) <= 10


def test_an_opponent_blocks_the_place_that_wins() -> None:
    for seed in (4, 6, 8):
        world = TextArenaWorld("ConnectFour-v0", seed)
        world.reset()
        board = world._game.state.game_state["board"]
        for row in (-1, -2, -3):
            board[row][0] = "X"
        world.step("[6]")
        assert board[-4][0] == "O"
