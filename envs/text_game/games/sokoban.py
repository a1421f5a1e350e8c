"""Sokoban: push all boxes onto targets. Levels are generated backwards from solved positions, so that all can be
solved."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from verl_agentic import ConfigError, DataError

from .game import Move, Status, Style
from .grid import NAMES, Cell, after, cells, draw, read_board, read_direction
from .sokoban_solver import MAX_STATES, Layout, LevelState, Solutions, solutions, state_count

# The symbols of the format XSB, but `_` for the floor, because blanks may be stripped.
_WALL, _FLOOR, _TARGET = "#", "_", "."
_PLAYER, _PLAYER_ON_TARGET, _BOX, _BOX_ON_TARGET = "@", "+", "$", "*"
_SYMBOLS = _WALL + _FLOOR + _TARGET + _PLAYER + _PLAYER_ON_TARGET + _BOX + _BOX_ON_TARGET
_LEGEND = {
    _PLAYER + _PLAYER_ON_TARGET: "you",
    _BOX + _BOX_ON_TARGET: "boxes",
    _TARGET + _PLAYER_ON_TARGET + _BOX_ON_TARGET: "targets",
}
_INNER_WALL_SHARE = 0.12
_TRIES = 300


@dataclass(frozen=True, kw_only=True)
class SokobanOptions:
    """Options of a level."""

    size: int = 6
    """Rows and columns, the outer wall included."""
    boxes: int = 1
    """Number of boxes and of targets."""
    min_moves: int = 4
    """Minimum moves of the shortest solution."""
    max_moves: int = 12
    """Maximum moves of the shortest solution."""
    coordinates: bool = False
    """Whether positions are also given as (row,column)."""

    def __post_init__(self) -> None:
        if not 5 <= self.size <= 16:
            raise ConfigError(f"size of a level must be 5 to 16, got {self.size}")
        if not 1 <= self.boxes <= 4:
            raise ConfigError(f"boxes must be 1 to 4, got {self.boxes}")
        if not 1 <= self.min_moves <= self.max_moves:
            raise ConfigError(f"min_moves must be 1 to max_moves ({self.max_moves}), got {self.min_moves}")
        # 0.8: levels with so many inner walls are drawn often enough.
        if state_count(round((self.size - 2) ** 2 * (1 - _INNER_WALL_SHARE) * 0.8), self.boxes) > MAX_STATES:
            raise ConfigError(
                f"levels of that size have too many positions to be solved, got size={self.size} with "
                f"boxes={self.boxes}; lower one of them"
            )


class Sokoban:
    """A level; see `Game`."""

    options: ClassVar[type] = SokobanOptions
    actions: Sequence[str] = NAMES

    def __init__(self, board: Sequence[str], *, coordinates: bool = False) -> None:
        """Makes the game of a board in XSB symbols, with `_` for the floor.

        Raises:
            DataError: the board is invalid, open to the outside, or has too many positions.
        """
        self._board = read_board(board, symbols=_SYMBOLS)
        self._coordinates = coordinates
        players = cells(self._board, _PLAYER + _PLAYER_ON_TARGET)
        boxes = frozenset(cells(self._board, _BOX + _BOX_ON_TARGET))
        targets = frozenset(cells(self._board, _TARGET + _PLAYER_ON_TARGET + _BOX_ON_TARGET))
        if len(players) != 1 or len(boxes) != len(targets) or not boxes:
            raise DataError(
                f"a level has one player and as many boxes as targets, got {list(board)}; make the rows anew"
            )
        self._layout = Layout(frozenset(cells(self._board, _SYMBOLS.replace(_WALL, ""))), targets)
        self._start = LevelState(players[0], boxes)
        if any(r in (0, len(board) - 1) or c in (0, len(board[0]) - 1) for r, c in self._layout.floor):
            raise DataError(f"a level is closed by walls all around, got {list(board)}; make the rows anew")
        if state_count(len(self._layout.floor), len(boxes)) > MAX_STATES:
            raise DataError(f"the level has too many positions to be solved, got {list(board)}; take a smaller one")

    @cached_property
    def _level_solutions(self) -> Solutions:
        return solutions(self._layout)

    @property
    def _moves_left(self) -> dict[LevelState, int]:
        """Moves of the shortest solution from every position that has one."""
        return self._level_solutions.moves_left

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Sokoban:
        """Returns the level of a row; see `Game.from_spec`."""
        return cls(spec.get("board", ()), coordinates=bool(spec.get("coordinates", False)))

    @classmethod
    def generate(cls, seed: int, options: SokobanOptions) -> Sokoban:
        """Returns the level of a seed; see `Game.generate`."""
        rng = random.Random(seed)
        for _ in range(_TRIES):
            layout = _random_layout(rng, options)
            if layout is None or state_count(len(layout.floor), options.boxes) > MAX_STATES:
                continue
            solved = solutions(layout)
            by_moves: dict[int, list[LevelState]] = {}
            for state, moves in solved.moves_left.items():
                if options.min_moves <= moves <= options.max_moves and not state.boxes & layout.targets:
                    by_moves.setdefault(moves, []).append(state)
            if by_moves:
                # Choose the length first; otherwise nearly all levels would have the most frequent length.
                start = rng.choice(by_moves[rng.choice(sorted(by_moves))])
                level = cls(_draw_board(layout, start, options.size), coordinates=options.coordinates)
                level.prepare()
                return level
        raise ConfigError(
            f"none of {_TRIES} levels is as wanted, got {options}; raise size or widen min_moves, max_moves"
        )

    @property
    def spec(self) -> dict[str, Any]:
        """The board."""
        spec: dict[str, Any] = {"game": "sokoban", "board": list(self._board)}
        return spec | ({"coordinates": True} if self._coordinates else {})

    @property
    def identity(self) -> str:
        """The board."""
        return "/".join(self._board)

    def prepare(self) -> None:
        """Solves all positions of the level, unless a sibling did.

        Raises:
            DataError: the level cannot be won.
        """
        if self._start not in self._moves_left:
            raise DataError(f"the level cannot be won, got {list(self._board)}; make the rows anew")

    def start(self) -> LevelState:
        """Returns the position of the board."""
        return self._start

    def legal(self, state: LevelState) -> Sequence[str]:
        """Returns the four directions; a move against a wall is legal and stays."""
        return NAMES

    def read(self, state: LevelState, text: str) -> str | None:
        """Returns the direction of a text."""
        return read_direction(text)

    def move(self, state: LevelState, action: str) -> Move[LevelState]:
        """Moves one cell and pushes a box if the cell behind it is free."""
        to = after(state.player, action)
        if to not in self._layout.floor:
            return Move(state, "A wall is in the way.", False)
        if to not in state.boxes:
            return Move(LevelState(to, state.boxes))
        behind = after(to, action)
        if behind not in self._layout.floor or behind in state.boxes:
            return Move(state, "The box cannot be pushed.", False)
        return Move(LevelState(to, state.boxes - {to} | {behind}))

    def status(self, state: LevelState) -> Status:
        """Returns `dead` if the level cannot be solved any more."""
        if state.boxes == self._layout.targets:
            return "goal"
        return "open" if state in self._moves_left else "dead"

    def distance(self, state: LevelState) -> int | None:
        """Returns the number of moves of the shortest solution; None without one."""
        return self._moves_left.get(state)

    def solution(self, state: LevelState) -> list[str]:
        """Returns the shortest solution."""
        distances, actions = self._moves_left, []
        while distances.get(state, 0) > 0:
            action = min(NAMES, key=lambda name: distances.get(self.move(state, name).state, MAX_STATES))
            actions.append(action)
            state = self.move(state, action).state
        return actions

    def rules(self, style: Style) -> str:
        """Returns goal, symbols and actions; nothing in the compact style."""
        if style == "compact":
            return ""
        return (
            "Push every box onto a target. You can push one box at a time, and never pull.\n"
            f"Symbols: {_WALL} wall, {_FLOOR} floor, {_TARGET} target, {_PLAYER} you, {_BOX} box, "
            f"{_BOX_ON_TARGET} box on a target, {_PLAYER_ON_TARGET} you on a target.\n"
            f"Actions: {', '.join(NAMES)}."
        )

    def view(self, state: LevelState, style: Style) -> str:
        """Returns the board."""
        legend = _LEGEND if self._coordinates else {}
        board = _draw_board(self._layout, state, len(self._board), len(self._board[0]))
        return draw(board, style=style, legend=legend)


def _random_layout(rng: random.Random, options: SokobanOptions) -> Layout | None:
    """Returns a connected floor with targets; None if it is too small."""
    inner = [(r, c) for r in range(1, options.size - 1) for c in range(1, options.size - 1)]
    free = [cell for cell in inner if rng.random() >= _INNER_WALL_SHARE]
    floor = sorted(_largest_part(set(free)))
    if len(floor) < 2 * options.boxes + 1:
        return None
    return Layout(frozenset(floor), frozenset(rng.sample(floor, options.boxes)))


def _largest_part(free: set[Cell]) -> set[Cell]:
    largest: set[Cell] = set()
    while free:
        part, ends = set(), [min(free)]
        while ends:
            cell = ends.pop()
            if cell in free:
                free.discard(cell)
                part.add(cell)
                ends.extend(after(cell, direction) for direction in NAMES)
        largest = max(largest, part, key=len)
    return largest


def _draw_board(layout: Layout, state: LevelState, rows: int, columns: int | None = None) -> list[str]:
    def symbol(cell: Cell) -> str:
        is_target = cell in layout.targets
        if cell in state.boxes:
            return _BOX_ON_TARGET if is_target else _BOX
        if cell == state.player:
            return _PLAYER_ON_TARGET if is_target else _PLAYER
        if cell not in layout.floor:
            return _WALL
        return _TARGET if is_target else _FLOOR

    return ["".join(symbol((r, c)) for c in range(columns or rows)) for r in range(rows)]
