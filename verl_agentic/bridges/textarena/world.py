"""A game of TextArena as a text world."""

from __future__ import annotations

import copy
import importlib
import random
from collections.abc import Sequence
from typing import Any

from verl_agentic.bridges.scoped_random import drawing_from
from verl_agentic.bridges.text_world import WorldTurn
from verl_agentic.env_card import needs_extra

from .games import game_of

_MAX_ACTION_CHARS = 1_000


class TextArenaWorld:
    """A game in which the policy is one player (`text_world.ExpertWorld`)."""

    actions = None

    def __init__(self, task: str, seed: int, line: Sequence[str] = ()) -> None:
        """Makes the world of a row.

        Args:
            task: id of the game.
            seed: of all randomness; an odd one makes the policy the second of two players.
            line: actions that win.
        """
        self._task, self._seed, self._line = task, seed, tuple(line)
        self._known = game_of(task)
        self._me = seed % self._known.players
        self._generator = random.Random(seed)
        self._opponent = random.Random(f"opponent/{seed}")
        self._played: list[str] = []
        self._game: Any = None

    def reset(self) -> str:
        """Makes the game of the seed, and plays up to the first turn of the policy."""
        with needs_extra("textarena", what="the environment textarena"):
            registration = importlib.import_module("textarena.envs.registration")
        name = f"{self._task}-raw"
        importlib.import_module(registration.ENV_REGISTRY[name].entry_point.partition(":")[0])
        with drawing_from(self._generator, package="textarena"):
            self._game = registration.make(name)
            self._game.reset(num_players=self._known.players, seed=self._seed)
        self._let_opponent_play()
        return self._seen()

    def step(self, action: str) -> WorldTurn:
        """Executes an action; the game allows one invalid action in a row."""
        action = action.strip()
        if len(action) > _MAX_ACTION_CHARS:
            return WorldTurn(text=f"Error: an action has at most {_MAX_ACTION_CHARS} characters", is_valid=False)
        self._played.append(action)
        is_valid = self._move(self._game, self._generator, action if "[" in action else f"[{action}]")
        self._let_opponent_play()
        if not self._game.state.done:
            return WorldTurn(text=self._seen(), is_valid=is_valid)
        rewards, about = self._game.close()
        reward = float((rewards or {}).get(self._me, 0.0))
        text = "\n".join(filter(None, (self._seen(), str(about[self._me].get("reason") or ""))))
        return WorldTurn(text=text, is_valid=is_valid, is_over=True, is_won=reward >= 1, info={"game_reward": reward})

    def expert(self) -> str | None:
        """Returns the next action of the solution, or of the line while all actions are from it."""
        if self._known.solve is not None:
            return self._known.solve(self._game)
        at = len(self._played)
        return self._line[at] if at < len(self._line) and tuple(self._played) == self._line[:at] else None

    def random_action(self, rng: random.Random) -> str:
        """Returns a legal action, or any where none is found."""
        candidates = list(self._known.candidates(self._game))
        rng.shuffle(candidates)
        return next(filter(self._is_legal, candidates), candidates[0])

    def close(self) -> None:
        """Nothing to release."""

    def _let_opponent_play(self) -> None:
        state = self._game.state
        while not state.done and state.current_player_id != self._me:
            state.get_current_player_observation()
            self._move(self._game, self._generator, self.random_action(self._opponent))

    def _is_legal(self, action: str) -> bool:
        return self._move(copy.deepcopy(self._game), copy.deepcopy(self._generator), action)

    def _move(self, game: Any, generator: random.Random, action: str) -> bool:
        """Executes an action and returns whether it was valid."""
        player, errors = game.state.current_player_id, getattr(game.state, "error_count", 0)
        with drawing_from(generator, package="textarena"):
            game.step(action)
        game.state.logs = []  # nobody reads it, and copies would take it along
        is_same = game.state.current_player_id == player and getattr(game.state, "error_count", 0) > errors
        return not is_same and not game.state.game_info[player].get("invalid_move", False)

    def _seen(self) -> str:
        """Returns what was said to the policy since the last time, without its own actions."""
        said = self._game.state.observations[self._me]
        self._game.state.observations[self._me] = []
        told = [(who, text.strip()) for who, text, _ in said if who != self._me]
        return "\n".join(text if who < 0 else f"Player {who}: {text}" for who, text in told if text)
