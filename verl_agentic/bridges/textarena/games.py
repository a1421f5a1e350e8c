"""The games of TextArena that the bridge plays: possible actions, and solutions where they are known."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ArenaGame:
    """Facts about a game."""

    players: int
    candidates: Callable[[Any], list[str]]
    """Actions of which some are legal, from the game."""
    solve: Callable[[Any], str] | None = None
    """The next action of a solution, from the game; None: a solution is found by playing at random."""
    prefer: Callable[[Any], list[str]] | None = None
    """Actions that the opponent prefers, from the game; None: all legal ones."""
    is_blocked: bool = False
    """Whether the opponent wins where it can, and else takes the place with which the policy would win."""


def _offer_numbers(count: int) -> Callable[[Any], list[str]]:
    return lambda game: [f"[{index}]" for index in range(count)]


def _offer_words(*words: str) -> Callable[[Any], list[str]]:
    return lambda game: [f"[{word}]" for word in words]


def _list_cells(rows: int, columns: int) -> list[str]:
    return [f"[{row} {column}]" for row in range(rows) for column in range(columns)]


def _get_board(game: Any) -> Any:
    return game.state.game_state["board"]


def _bisect_range(game: Any) -> str:
    low, high = game.min_number, game.max_number
    for guess, hint in game.state.game_state["guess_history"]:
        low, high = (max(low, guess + 1), high) if hint == "higher" else (low, min(high, guess - 1))
    return f"[{(low + high) // 2}]"


def _cross_lake(game: Any) -> str:
    """Returns the first step of a shortest way over the lake."""
    state = game.state.game_state
    grid, start, goal = state["grid"], tuple(state["player_pos"]), tuple(state["goal_pos"])
    ends, visited_cells = deque([(start, "")]), {start}
    while ends:
        cell, first = ends.popleft()
        if cell == goal:
            return f"[{first}]"
        for way, (row, column) in game.actions.items():
            after = (cell[0] + row, cell[1] + column)
            inside = 0 <= after[0] < game.size and 0 <= after[1] < game.size
            if inside and after not in visited_cells and grid[after[0]][after[1]] != "H":
                visited_cells.add(after)
                ends.append((after, first or way))
    return "[up]"


def _press_light(game: Any) -> str:
    """Returns a light to press: chases the lights down from each possible first row, and takes the shortest way."""
    grid, size = game.state.game_state["grid"], game.size
    solutions = []
    for first in product((False, True), repeat=size):
        lights = [list(row) for row in grid]
        pressed = []
        for row in range(size):
            for column in range(size):
                if first[column] if row == 0 else lights[row - 1][column]:
                    pressed.append((row, column))
                    game._toggle_lights(lights, row, column)
        if not any(map(any, lights)):
            solutions.append(pressed)
    row, column = min(solutions, key=len)[0]
    return f"[{row} {column}]"


def _safe_cell(game: Any) -> str:
    hidden = [
        (row, column)
        for row, column in product(range(game.rows), range(game.cols))
        if not game.revealed[row][column] and game.grid[row][column] != -1
    ]
    row, column = hidden[len(hidden) // 2 if game.first_move else 0]
    return f"[{row} {column}]"


def _accept_the_best(game: Any) -> str:
    state = game.state.game_state
    is_best = state["draws"][state["current_idx"] - 1] == max(state["draws"])
    return "[accept]" if is_best else "[continue]"


def _fill_in(game: Any) -> str:
    board = _get_board(game)
    row, column = next((r, c) for r, c in product(range(9), range(9)) if board[r][c] == 0)
    return f"[{row + 1} {column + 1} {game.full_grid[row][column]}]"


def _moves_of_pieces(game: Any) -> list[str]:
    files = "abcdefghijklmnopqrstuvwxyz"[: game.board_size]
    piece, way = ("W", 1) if game.state.current_player_id == 0 else ("B", -1)
    places = [(x, y) for y, row in enumerate(_get_board(game)) for x, content in enumerate(row) if content == piece]
    steps = [(x, y, x + side) for x, y in places for side in (-1, 0, 1) if 0 <= x + side < len(files)]
    return [f"[{files[x]}{y + 1}{files[to]}{y + 1 + way}]" for x, y, to in steps]


def _safe_ways(game: Any) -> list[str]:
    """Returns the ways of Snake and Surround that do not lead into a wall, a trail or a snake."""
    state, player = game.state.game_state, game.state.current_player_id
    if "snakes" in state:
        blocked_cells = {cell for snake in state["snakes"].values() if snake.alive for cell in snake.positions}
        x, y = state["snakes"][player].head
    else:
        blocked_cells = {
            (x, y) for y, row in enumerate(state["board"]) for x, content in enumerate(row) if content is not None
        }
        blocked_cells |= {other.position for other in state["players"].values()}
        x, y = state["players"][player].position
    cells = {"up": (x, y + 1), "down": (x, y - 1), "left": (x - 1, y), "right": (x + 1, y)}
    return [
        f"[{way}]"
        for way, (column, row) in cells.items()
        if 0 <= column < game.width and 0 <= row < game.height and (column, row) not in blocked_cells
    ]


def _plausible_bids(game: Any) -> list[str]:
    """Returns higher bids of which the player holds nearly all dice, or a call where there are none."""
    state, player = game.state.game_state, game.state.current_player_id
    dice, last = state["dice_rolls"][player], state["current_bid"]
    spare = (sum(state["remaining_dice"].values()) - len(dice)) // 4
    bids = [
        f"[Bid: {quantity}, {face}]"
        for face in range(max(1, last["face_value"]), 7)
        for quantity in range(max(1, last["quantity"]), dice.count(face) + spare + 1)
        if (quantity, face) != (last["quantity"], last["face_value"])
    ]
    return bids or ["[Call]"] * bool(last["quantity"])


_MARKS = [f"[{mark} {cell}]" for mark in "XO" for cell in range(9)]
_GOPS = ("A", *map(str, range(2, 11)), "J", "Q", "K")
_ATTACKS = _offer_words(*(f"attack {mine} {yours}" for mine in (0, 1) for yours in (0, 1)))
_BIDS = [f"[Bid: {number}, {face}]" for number in range(1, 9) for face in range(1, 7)]
_WAYS = _offer_words("up", "down", "left", "right")

GAMES: Mapping[str, ArenaGame] = {
    "2048": ArenaGame(players=1, candidates=_WAYS),
    "FrozenLake": ArenaGame(players=1, candidates=_WAYS, solve=_cross_lake),
    "GuessTheNumber": ArenaGame(players=1, candidates=_offer_numbers(51), solve=_bisect_range),
    "LightsOut": ArenaGame(players=1, candidates=lambda game: _list_cells(game.size, game.size), solve=_press_light),
    "Mastermind": ArenaGame(
        players=1,
        candidates=lambda game: [f"[{' '.join(str(1 + i + j) for j in range(game.code_length))}]" for i in range(3)],
        solve=lambda game: f"[{' '.join(map(str, game.state.game_state['secret_code']))}]",
    ),
    "Minesweeper": ArenaGame(players=1, candidates=lambda game: _list_cells(game.rows, game.cols), solve=_safe_cell),
    "Secretary": ArenaGame(players=1, candidates=_offer_words("continue", "accept"), solve=_accept_the_best),
    "Sudoku": ArenaGame(
        players=1,
        candidates=lambda game: [f"[{r} {c} {n}]" for r, c, n in product(range(1, 10), repeat=3)],
        solve=_fill_in,
    ),
    "ThreeCardMonte": ArenaGame(players=1, candidates=_offer_numbers(3), solve=lambda game: f"[{game.ball_pos}]"),
    "Breakthrough": ArenaGame(players=2, candidates=_moves_of_pieces),
    "Chopsticks": ArenaGame(players=2, candidates=_ATTACKS),
    "ConnectFour": ArenaGame(
        players=2, candidates=lambda game: [f"[col {c}]" for c in range(game.num_cols)], is_blocked=True
    ),
    "GameOfPureStrategy": ArenaGame(players=2, candidates=_offer_words(*_GOPS)),
    "IteratedMatchingPennies": ArenaGame(players=2, candidates=_offer_words("heads", "tails")),
    "IteratedRockPaperScissors": ArenaGame(players=2, candidates=_offer_words("rock", "paper", "scissors")),
    "KuhnPoker": ArenaGame(players=2, candidates=_offer_words("Check", "Bet", "Fold", "Call")),
    "LiarsDice": ArenaGame(players=2, candidates=lambda game: ["[Call]", *_BIDS], prefer=_plausible_bids),
    "Nim": ArenaGame(
        players=2, candidates=lambda game: [f"[{p} {n}]" for p in range(len(game.initial_piles)) for n in range(1, 12)]
    ),
    "Othello": ArenaGame(players=2, candidates=lambda game: _list_cells(len(_get_board(game)), len(_get_board(game)))),
    "PigDice": ArenaGame(players=2, candidates=_offer_words("roll", "hold")),
    "SimpleTak": ArenaGame(players=2, candidates=lambda game: _offer_numbers(game.board_size**2)(game)),
    "Snake": ArenaGame(players=2, candidates=_WAYS, prefer=_safe_ways),
    "Surround": ArenaGame(players=2, candidates=_WAYS, prefer=_safe_ways),
    "TicTacToe": ArenaGame(players=2, candidates=_offer_numbers(9)),
    "UltimateTicTacToe": ArenaGame(players=2, candidates=lambda game: _list_cells(9, 9)),
    "WildTicTacToe": ArenaGame(players=2, candidates=lambda game: _MARKS),
}
"""Name of a game, which an id begins with -> what the bridge knows."""


def game_of(task: str) -> ArenaGame:
    """Returns the game of an id such as `Nim-v0-large`."""
    return GAMES[re.split(r"-v\d", task)[0]]
