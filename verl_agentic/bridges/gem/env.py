"""The environment `gem`: a game, its rows and its solution.

Not listed: `math:`, `code:`, `qa:` and `eval:` need data of a hub, and `rg:` is the bridge `reasoning_gym`. Of the
games, TowerofHanoi has one task each. Wordle, Hangman, Crosswords and WordSearch need word lists of nltk. Sokoban,
FifteenPuzzle and Game2048 have no solution here, and large sudokus take minutes to make. Minesweeper is only won with a
flag on every mine before the last cell is revealed, which its prompt does not say.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from verl_agentic.base.env_card import needs_extra, read_tasks
from verl_agentic.bridges.scoped_random import drawing_from
from verl_agentic.bridges.text_world import WorldTurn
from verl_agentic.bridges.text_world_package import TextWorldPackage

_TASKS = read_tasks(str(Path(__file__)))
_GAMES = ("guess_the_number", "mastermind", "sudoku")
_MAX_ACTION_CHARS = 1_000


class GemWorld:
    """A game (`text_world.ExpertWorld`)."""

    actions = None

    def __init__(self, task: str, seed: int) -> None:
        self._task = task
        self._generator = random.Random(seed)
        self._low_high = (0, 0)
        self._game: Any = None

    def reset(self) -> str:
        """Makes the game of the seed."""
        with needs_extra("gem", what="the environment gem"):
            gem = importlib.import_module("gem")
            for game in _GAMES:  # their random numbers are replaced below
                importlib.import_module(f"gem.envs.game_env.{game}")
        with drawing_from(self._generator, package="gem"):
            self._game = gem.make(f"game:{self._task}")
            text, about = self._game.reset()  # without a seed, which would seed numpy's global generator
        if self._task.startswith("Guess"):
            self._low_high = (self._game.min_number, self._game.max_number)
        return _join_texts(text, about)

    def step(self, action: str) -> WorldTurn:
        """Executes an action, with or without its box; the game ends at an action that it cannot read."""
        action = action.strip()
        if len(action) > _MAX_ACTION_CHARS:
            return WorldTurn(text=f"Error: an action has at most {_MAX_ACTION_CHARS} characters", is_valid=False)
        with drawing_from(self._generator, package="gem"):
            text, reward, is_end, is_cut, about = self._game.step(action if "\\boxed" in action else _box_words(action))
        if self._task.startswith("Guess"):
            self._narrow_range(text)
        # Rewards of steps are shares of 1, those of mistakes are negative, and a lost game may give partial credit.
        is_won = bool(is_end and not is_cut and reward > 0)
        return WorldTurn(
            text=text if is_end else _join_texts(text, about), is_valid=reward >= 0, is_over=is_end, is_won=is_won
        )

    def expert(self) -> str | None:
        """Returns the next action of a solution, with secrets known, except for numbers."""
        return _SOLUTIONS[self._task.split("-")[0]](self)

    def random_action(self, rng: random.Random) -> str:
        """Returns an action that the game proposes."""
        with drawing_from(rng, package="gem"):
            return self._game.sample_random_action()

    def close(self) -> None:
        """Nothing to release."""

    def _narrow_range(self, text: str) -> None:
        guess, (low, high) = sum(self._low_high) // 2, self._low_high
        tried = self._game.previous_guesses
        if guess in tried:
            self._low_high = (guess + 1, high) if "higher" in text else (low, guess - 1)

    def guess(self) -> str:
        """Returns the middle of the numbers that are left."""
        return _box_words(sum(self._low_high) // 2)

    def code(self) -> str:
        """Returns the secret code."""
        return _box_words(*self._game.game_code)

    def number(self) -> str:
        """Returns a number of the solved sudoku."""
        game, size = self._game, range(self._game.scale)
        row, column = next((r, c) for r, c in product(size, size) if game.board[r][c] == 0)
        return _box_words(row + 1, column + 1, game.full_grid[row][column])


_SOLUTIONS: Mapping[str, Callable[[GemWorld], str]] = {
    "GuessTheNumber": GemWorld.guess,
    "Mastermind": GemWorld.code,
    "Sudoku": GemWorld.number,
}


_PACKAGE = TextWorldPackage("gem", tasks=_TASKS, make_world=GemWorld, is_hidden=True)
make_env, make_rows, gold, demonstrator = _PACKAGE.make_env, _PACKAGE.make_rows, _PACKAGE.gold, _PACKAGE.demonstrator


def _box_words(*words: object) -> str:
    return f"\\boxed{{{' '.join(map(str, words))}}}"


def _join_texts(text: str, about: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, (text.strip(), str(about.get("suffix") or "").strip())))
