"""FrozenLake: cross the ice to the goal without stepping into a hole; the ice may be slippery."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from verl_agentic import ConfigError, DataError

from .game import Move, Status, Style
from .grid import NAMES, Cell, after, cells, draw, read_board, read_direction

_PLAYER, _ICE, _HOLE, _GOAL = "P", "_", "O", "G"
_LEGEND = {_PLAYER: "you", _GOAL: "goal", _HOLE: "holes"}
_TRIES = 2_000
_MIN_RANDOM_DISTANCE = 2


@dataclass(frozen=True, kw_only=True)
class FrozenLakeOptions:
    """Options of a lake."""

    size: int = 4
    """Rows and columns."""
    hole_probability: float = 0.2
    """Probability of a hole in each free cell; boards without a path are drawn again."""
    slip: float = 0.0
    """Probability that a move goes sideways, half to each side. 2/3 is the slippery lake of gymnasium."""
    placement: Literal["corners", "random"] = "corners"
    """Positions of start and goal: top left and bottom right, or random with at least two steps between them."""
    coordinates: bool = False
    """Whether positions are also given as (row,column)."""

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 32:
            raise ConfigError(f"size of a lake must be 2 to 32, got {self.size}")
        if not 0 <= self.hole_probability < 1:
            raise ConfigError(f"hole_probability must be at least 0 and less than 1, got {self.hole_probability}")
        if not 0 <= self.slip < 1:
            raise ConfigError(f"slip must be at least 0 and less than 1, got {self.slip}")
        if self.placement not in ("corners", "random"):
            raise ConfigError(f"placement must be 'corners' or 'random', got {self.placement!r}")


class LakeState(NamedTuple):
    """The position of the player."""

    cell: Cell
    moves: int
    """Number of moves so far, which determines the next slip; always 0 without slips."""


class FrozenLake:
    """A lake; see `Game`."""

    options: ClassVar[type] = FrozenLakeOptions
    actions: Sequence[str] = NAMES

    def __init__(self, board: Sequence[str], *, slip: float = 0.0, seed: int = 0, coordinates: bool = False) -> None:
        """Makes the game of a board.

        Args:
            board: lines of `_` ice, `O` hole, one `P` (start) and one `G` (goal).
            slip: probability that a move goes sideways.
            seed: of the slips: equal moves always slip alike.
            coordinates: whether the view also gives positions.

        Raises:
            DataError: the board is invalid, or has no path to the goal.
        """
        self._board = read_board(board, symbols=_PLAYER + _ICE + _HOLE + _GOAL)
        self._slip, self._seed, self._coordinates = slip, seed, coordinates
        starts, goals = cells(self._board, _PLAYER), cells(self._board, _GOAL)
        if len(starts) != 1 or len(goals) != 1:
            raise DataError(f"a lake has one P and one G, got {list(self._board)}; make the rows anew")
        self._start, self._goal = starts[0], goals[0]
        if self._start not in self._distances_to_goal:
            raise DataError(f"the lake has no way to the goal, got {list(self._board)}; make the rows anew")

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> FrozenLake:
        """Returns the lake of a row; see `Game.from_spec`."""
        coordinates = bool(spec.get("coordinates", False))
        return cls(spec.get("board", ()), slip=spec.get("slip", 0.0), seed=spec.get("seed", 0), coordinates=coordinates)

    @classmethod
    def generate(cls, seed: int, options: FrozenLakeOptions) -> FrozenLake:
        """Returns the lake of a seed; see `Game.generate`."""
        rng = random.Random(seed)
        for _ in range(_TRIES):
            board, slips = _random_board(rng, options), rng.getrandbits(31)
            try:
                lake = cls(board, slip=options.slip, seed=slips, coordinates=options.coordinates)
            except DataError:
                continue
            is_far = options.placement == "corners" or lake._distances_to_goal[lake._start] >= _MIN_RANDOM_DISTANCE
            if is_far:
                return lake
        raise ConfigError(f"none of {_TRIES} lakes has a way to the goal, got {options}; lower hole_probability")

    @property
    def spec(self) -> dict[str, Any]:
        """The board, and options that are not the default."""
        spec: dict[str, Any] = {"game": "frozen_lake", "board": list(self._board)}
        if self._slip:
            spec |= {"slip": self._slip, "seed": self._seed}
        return spec | ({"coordinates": True} if self._coordinates else {})

    @property
    def identity(self) -> str:
        """The board."""
        return "/".join(self._board)

    def prepare(self) -> None:
        """Does nothing."""

    def start(self) -> LakeState:
        """Returns the start, before the first move."""
        return LakeState(self._start, 0)

    def legal(self, state: LakeState) -> Sequence[str]:
        """Returns the four directions; a move against the border is legal and stays."""
        return NAMES

    def read(self, state: LakeState, text: str) -> str | None:
        """Returns the direction of a text."""
        return read_direction(text)

    def move(self, state: LakeState, action: str) -> Move[LakeState]:
        """Moves one cell, possibly sideways; stays at the border."""
        direction = self._draw_direction(action, state.moves)
        cell = after(state.cell, direction)
        if not self._is_inside(cell):
            cell = state.cell
        message = "" if direction == action else f"You slip and move {direction}."
        is_effective = cell != state.cell
        text = message if is_effective else "You cannot leave the lake."
        return Move(LakeState(cell, state.moves + 1 if self._slip else 0), text, is_effective)

    def status(self, state: LakeState) -> Status:
        """Returns `dead` in a hole."""
        if state.cell == self._goal:
            return "goal"
        return "open" if state.cell in self._distances_to_goal else "dead"

    def distance(self, state: LakeState) -> int | None:
        """Returns the length of the shortest path; None in a hole."""
        return self._distances_to_goal.get(state.cell)

    def solution(self, state: LakeState) -> list[str]:
        """Returns the shortest path; on slippery ice, the actions whose slips follow it."""
        actions: list[str] = []
        while distance := self._distances_to_goal.get(state.cell, 0):
            moves = {action: self.move(state, action).state for action in NAMES}
            # A slip rotates all four actions alike, so one of them always reaches the next cell.
            action = next(name for name in NAMES if self._distances_to_goal.get(moves[name].cell, distance) < distance)
            actions.append(action)
            state = moves[action]
        return actions

    def rules(self, style: Style) -> str:
        """Returns goal, symbols and actions; nothing in the compact style."""
        if style == "compact":
            return ""
        slippery = " The ice is slippery: you may move sideways instead." if self._slip else ""
        return (
            "Cross the frozen lake to the goal without stepping into a hole.\n"
            f"Symbols: {_PLAYER} you, {_ICE} ice, {_HOLE} hole, {_GOAL} goal.\n"
            f"Actions: {', '.join(NAMES)}.{slippery}"
        )

    def view(self, state: LakeState, style: Style) -> str:
        """Returns the board with the player on it."""
        lines = [list(line.replace(_PLAYER, _ICE)) for line in self._board]
        lines[state.cell[0]][state.cell[1]] = _PLAYER
        return draw(map("".join, lines), style=style, legend=_LEGEND if self._coordinates else {})

    @cached_property
    def _distances_to_goal(self) -> dict[Cell, int]:
        """Steps to the goal from every cell with a path to it."""
        distances, ends = {self._goal: 0}, deque([self._goal])
        while ends:
            cell = ends.popleft()
            for beside in (after(cell, direction) for direction in NAMES):
                if self._is_inside(beside) and beside not in distances and self._board[beside[0]][beside[1]] != _HOLE:
                    distances[beside] = distances[cell] + 1
                    ends.append(beside)
        return distances

    def _is_inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < len(self._board) and 0 <= cell[1] < len(self._board[0])

    def _draw_direction(self, action: str, moves: int) -> str:
        if not self._slip:
            return action
        luck = random.Random(f"{self._seed}/{moves}").random()
        turn = 0 if luck >= self._slip else (1 if luck < self._slip / 2 else -1)
        return NAMES[(NAMES.index(action) + turn) % len(NAMES)]


def _random_board(rng: random.Random, options: FrozenLakeOptions) -> list[str]:
    size = options.size
    lines = [[_HOLE if rng.random() < options.hole_probability else _ICE for _ in range(size)] for _ in range(size)]
    start, goal = 0, size * size - 1
    if options.placement == "random":
        start, goal = rng.sample(range(size * size), 2)
    lines[start // size][start % size] = _PLAYER
    lines[goal // size][goal % size] = _GOAL
    return ["".join(line) for line in lines]
