"""A game of TextArena as a text world."""

from __future__ import annotations

import copy
import importlib
import math
import random
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.bridges.scoped_random import drawing_from
from verl_agentic.bridges.text_world import WorldTurn

from .games import game_of

_MAX_ACTION_CHARS = 1_000
_SLIP = 0.1
"""Probability that the opponent plays at random in a game of which it knows good actions."""


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
        self._facts = game_of(task)
        self._me = seed % self._facts.players
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
            self._game.reset(num_players=self._facts.players, seed=self._seed)
        self._let_opponent_play()
        return self._read_observations()

    def step(self, action: str) -> WorldTurn:
        """Executes an action; the game allows one invalid action in a row."""
        action = action.strip()
        if len(action) > _MAX_ACTION_CHARS:
            return WorldTurn(text=f"Error: an action has at most {_MAX_ACTION_CHARS} characters", is_valid=False)
        self._played.append(action)
        is_valid = self._play_move(self._game, self._generator, action if "[" in action else f"[{action}]")
        self._let_opponent_play()
        if not self._game.state.done:
            return WorldTurn(text=self._read_observations(), is_valid=is_valid)
        rewards, about = self._game.close()
        reward = (rewards or {}).get(self._me, 0.0)
        if not isinstance(reward, (int, float)) or not math.isfinite(reward):
            reward = 0.0  # ThreeCardMonte gives the reason of a lost game as its reward
        text = "\n".join(filter(None, (self._read_observations(), str(about[self._me].get("reason") or ""))))
        return WorldTurn(
            text=text, is_valid=is_valid, is_over=True, is_won=reward >= 1, info={"game_reward": float(reward)}
        )

    def expert(self) -> str | None:
        """Returns the next action of the solution, or of the line while all actions are from it."""
        if self._facts.solve is not None:
            return self._facts.solve(self._game)
        turn = len(self._played)
        return self._line[turn] if turn < len(self._line) and tuple(self._played) == self._line[:turn] else None

    def random_action(self, rng: random.Random) -> str:
        """Returns a legal action, or any where none is found."""
        candidates = list(self._facts.candidates(self._game))
        rng.shuffle(candidates)
        return next(filter(self._is_legal, candidates), candidates[0])

    def sound_action(self, rng: random.Random) -> str:
        """Returns an action of the player whose turn it is, as the opponent chooses it."""
        if self._facts.is_blocked:
            player = self._game.state.current_player_id
            for winner in (player, 1 - player):
                places = [action for action in self._facts.candidates(self._game) if self._would_win(winner, action)]
                if places:
                    return rng.choice(places)
        if self._facts.prefer is None or rng.random() < _SLIP:
            return self.random_action(rng)
        preferred = self._facts.prefer(self._game)
        return rng.choice(preferred) if preferred else self.random_action(rng)

    def close(self) -> None:
        """Nothing to release."""

    def _would_win(self, player: int, action: str) -> bool:
        """Returns whether an action would end the game with a win of a player, if it were its turn."""
        game = copy.deepcopy(self._game)
        game.state.current_player_id = player
        if not self._play_move(game, copy.deepcopy(self._generator), action) or not game.state.done:
            return False
        return (game.state.rewards or {}).get(player, 0) > 0

    def _let_opponent_play(self) -> None:
        state = self._game.state
        while not state.done and state.current_player_id != self._me:
            state.get_current_player_observation()
            self._play_move(self._game, self._generator, self.sound_action(self._opponent))

    def _is_legal(self, action: str) -> bool:
        return self._play_move(copy.deepcopy(self._game), copy.deepcopy(self._generator), action)

    def _play_move(self, game: Any, generator: random.Random, action: str) -> bool:
        """Executes an action and returns whether it was valid."""
        player, errors = game.state.current_player_id, getattr(game.state, "error_count", 0)
        with drawing_from(generator, package="textarena"):
            game.step(action)
        game.state.logs = []  # nobody reads it, and copies would take it along
        is_same = game.state.current_player_id == player and getattr(game.state, "error_count", 0) > errors
        return not is_same and not game.state.game_info[player].get("invalid_move", False)

    def _read_observations(self) -> str:
        """Returns what was said to the policy since the last time, without its own actions."""
        observations = self._game.state.observations[self._me]
        self._game.state.observations[self._me] = []
        messages = [(player, text.strip()) for player, text, _ in observations if player != self._me]
        return "\n".join(text if player < 0 else f"Player {player}: {text}" for player, text in messages if text)
