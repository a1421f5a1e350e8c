"""Games of TextWorld and of ALFWorld as text worlds, read from files with the package `textworld`."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.base.env_card import needs_extra
from verl_agentic.bridges.task_rows import Split
from verl_agentic.bridges.text_world import WorldTurn

from .house import NOTHING

SUFFIXES = (".z8", ".ulx", ".tw-pddl")
"""TextWorld also writes a `.json` beside a game. It has no texts of rooms, so it is no game here."""
_TEST_PART = 5
_TEST_FOLDERS = (
    "valid", "val", "validation", "dev", "eval", "test", "valid_seen", "valid_unseen", "valid_train", "tests_seen",
    "tests_unseen",
)  # fmt: skip
_NOT_SUPPORTED = ("movable", "Sliced")
"""Parts of the paths of games that ALFWorld leaves out (alfworld 0.4.2, `AlfredTWEnv.collect_game_files`)."""
_STATUS = re.compile(r">(\s*-=.*=-\s*\S*)?")
_BANNER = re.compile(r"[ $\\/|_>]+")
"""Lines of TextWorld's title, which are letters made of these characters."""


class Game(Protocol):
    """The part of `textworld.Environment` that the world uses. A state is a mapping with the names of `EnvInfos`."""

    def reset(self) -> Any:
        """Returns the first state."""
        ...

    def step(self, command: str) -> tuple[Any, float, bool]:
        """Returns state, score, and whether the game is over."""
        ...

    def close(self) -> None:
        """Ends the game."""
        ...


OpenGame = Callable[[Path], Game]


class GameFileWorld:
    """A game in a file (`text_world.ExpertWorld`)."""

    actions = None

    def __init__(self, path: Path, *, max_steps: int, open_game: OpenGame | None = None) -> None:
        """Makes the world of a file; `open_game` replaces the package textworld in tests."""
        self._path, self._max_steps = path, max_steps
        self._open = open_game or open_textworld
        self._game: Game | None = None
        self._state: Any = None
        self._steps = 0

    def reset(self) -> str:
        """Returns the first text of the game, with its goal."""
        self._game = self._open(self._path)
        self._state = self._game.reset()
        objective = self._state.get("objective") or ""
        text = _clean_text(self._state.get("feedback") or "")
        return text if objective.strip() in text else f"{text}\n{_clean_text(objective)}"

    def step(self, action: str) -> WorldTurn:
        """Executes a command; a command that is not admissible changes nothing."""
        assert self._game is not None
        self._steps += 1
        command = action.strip()
        if "\n" in command or command not in self._list_admissible():
            is_over = self._steps >= self._max_steps
            return WorldTurn(text=self._add_commands(NOTHING), is_valid=False, is_over=is_over)
        self._state, score, is_over = self._game.step(command)
        is_won = bool(self._state.get("won"))
        return WorldTurn(
            text=self._add_commands(_clean_text(self._state.get("feedback") or "")),
            is_over=is_over or is_won or bool(self._state.get("lost")) or self._steps >= self._max_steps,
            is_won=is_won,
            info={"game_score": float(score)},
        )

    def expert(self) -> str | None:
        """Returns the next command of the game's own solution."""
        # TextWorld's games name the rest of their solution, ALFWorld's theirs in the extra `expert_plan`.
        commands = self._state.get("policy_commands") or self._state.get("extra.expert_plan") or ()
        return commands[0] if commands else None

    def random_action(self, rng: random.Random) -> str:
        """Returns an admissible command."""
        return rng.choice(self._list_admissible())

    def close(self) -> None:
        """Ends the game."""
        if self._game is not None:
            self._game.close()

    def _list_admissible(self) -> list[str]:
        return sorted(self._state.get("admissible_commands") or ())

    def _add_commands(self, text: str) -> str:
        return f"{text}\nPossible commands: {', '.join(self._list_admissible())}."


def open_textworld(path: Path) -> Game:
    """Opens a game with the package textworld; ALFWorld's games also need the package alfworld."""
    with needs_extra("textworld", what="a game file in household"):
        textworld = importlib.import_module("textworld")
    infos = textworld.EnvInfos(
        feedback=True, objective=True, won=True, lost=True, admissible_commands=True, policy_commands=True
    )
    wrappers: list[Any] = []
    if path.suffix == ".tw-pddl":
        alfworld = importlib.import_module("alfworld.agents.environment.alfred_tw_env")
        infos = textworld.EnvInfos(
            feedback=True, won=True, admissible_commands=True, extras=["gamefile", "expert_plan"]
        )
        wrappers = [alfworld.AlfredDemangler(), alfworld.AlfredInfos, alfworld.AlfredExpert()]
    return textworld.start(str(path), infos, wrappers=wrappers)


def game_rows(
    folder: str, *, split: Split, count: int, seed: int, max_steps: int, open_game: OpenGame | None = None
) -> list[EnvRow]:
    """Returns rows of the game files in a folder and its subfolders.

    A folder `train` in a game's path puts it into the train split, a folder such as `valid_seen` or `test` into the
    test split. Other games are split by a hash of their path below the folder.

    Raises:
        ConfigError: the split has fewer games.
    """
    root = Path(folder).resolve()
    games = {name: path for name, path in _find_games(root).items() if _split_of(root, name) == split}
    names = sorted(games)
    random.Random(f"{split}/{seed}").shuffle(names)
    chosen = list(itertools.islice((name for name in names if _is_supported(name, games[name])), count))
    if len(chosen) < count:
        raise ConfigError(
            f"{folder!r} has {len(chosen)} {split} games ({', '.join(SUFFIXES)}), got count={count}; lower count, or "
            "give the folder that holds the folders of all splits"
        )
    return [_build_row(games[name], name=name, max_steps=max_steps, open_game=open_game) for name in chosen]


def _find_games(root: Path) -> dict[str, Path]:
    """Returns path below the folder, without its suffix -> the file of the game."""
    games: dict[str, Path] = {}
    for suffix in SUFFIXES:
        for path in root.rglob(f"*{suffix}"):
            games.setdefault(path.relative_to(root).as_posix().removesuffix(suffix), path)
    return games


def _is_supported(name: str, path: Path) -> bool:
    """Returns False for games that ALFWorld leaves out."""
    if path.suffix != ".tw-pddl":
        return True
    if any(part in name for part in _NOT_SUPPORTED):
        return False
    try:
        game = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        game = None
    return not (isinstance(game, dict) and game.get("solvable") is False)


def _build_row(path: Path, *, name: str, max_steps: int, open_game: OpenGame | None) -> EnvRow:
    world = GameFileWorld(path, max_steps=max_steps, open_game=open_game)
    try:
        prompt = world.reset()
    finally:
        world.close()
    return EnvRow(
        prompt=(Message("user", prompt),),
        ground_truth={"game_file": str(path), "max_steps": max_steps},
        data_source="household",
        extra={"task_id": name, "task": "game_file"},
    )


def _split_of(root: Path, name: str) -> Split:
    for folder in (root.name, *name.split("/")[:-1]):
        if folder == "train" or folder in _TEST_FOLDERS:
            return "train" if folder == "train" else "test"
    return "test" if hashlib.sha256(name.encode()).digest()[0] % _TEST_PART == 0 else "train"


def _clean_text(text: str) -> str:
    """Returns a text without empty lines, title, and the prompt with its status line."""
    lines: Sequence[str] = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not _STATUS.fullmatch(line) and not _BANNER.fullmatch(line))
