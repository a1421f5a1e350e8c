"""The environment `text_game`: one tool, `act`, to play a game until its goal or a dead end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from verl_agentic import (
    Action,
    ConfigError,
    DataError,
    EnvRow,
    Message,
    Observation,
    Reward,
    StopReason,
    ToolEnv,
    Transcript,
)

from .act import ActTool, Presentation
from .games import load_game


class TextGameEnv(ToolEnv):
    """A game (`row.ground_truth`) in which the policy acts in every turn."""

    def __init__(self, row: EnvRow, tool: ActTool, *, dense_reward: float, no_action_turns: int) -> None:
        # One call after the other: the order of actions matters.
        super().__init__(row, [tool], max_parallel_calls=1)
        self._tool = tool
        self._dense_reward = dense_reward
        self._no_action_turns = no_action_turns
        self._silent_turns = 0
        self._first_distance = 0
        self._progress = 0.0

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row, after the game is prepared.

        Raises:
            DataError: it cannot be won, or is already over.
        """
        game = self._tool.game
        await asyncio.to_thread(game.prepare)
        if game.status(self._tool.state) != "open":
            raise DataError(f"the game is over before it begins, got {self.row.ground_truth}; make the rows anew")
        if self._dense_reward:
            self._first_distance = await asyncio.to_thread(game.distance, self._tool.state) or 0
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        """Executes the calls in order; a turn without calls gets a reminder or ends the episode."""
        if not action.tool_calls:
            return self._no_action()
        self._silent_turns = 0
        self._tool.begin_turn()
        observation = await super().step(action)
        status = self._tool.game.status(self._tool.state)
        counts = self._tool.take_counts()
        counts["invalid_actions"] += sum(call.error is not None for call in action.tool_calls)
        counts["dead_ends"] += status == "dead"
        return replace(
            observation,
            reward=await self._compute_reward(),
            stop=None if status == "open" else StopReason.ENV_DONE,
            info={**observation.info, **{name: float(number) for name, number in counts.items() if number}},
        )

    def state_key(self) -> str:
        """Returns the position as text."""
        return self._tool.view()

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the goal is reached, else 0."""
        return Reward(float(self._tool.game.status(self._tool.state) == "goal"))

    def _no_action(self) -> Observation:
        self._silent_turns += 1
        info = {"no_action_turns": 1.0}
        if self._silent_turns >= self._no_action_turns:
            return Observation(stop=StopReason.NO_ACTION, info=info)
        text = f"An action is needed. Possible actions: {self._tool.possible()}"
        return Observation(messages=(Message("user", text),), info=info)

    async def _compute_reward(self) -> float:
        """Returns the turn's share of `dense_reward`, from its progress towards the goal."""
        if not self._dense_reward:
            return 0.0
        distance = await asyncio.to_thread(self._tool.game.distance, self._tool.state)
        before = self._progress
        self._progress = 0.0 if distance is None else max(0.0, 1.0 - distance / self._first_distance)
        return self._dense_reward * (self._progress - before)


def make_env(
    row: EnvRow, *, dense_reward: float = 0.0, no_action_turns: int = 1, max_actions_per_turn: int | None = None
) -> TextGameEnv:
    """Returns the environment of one episode.

    Args:
        row: the game, as `make_rows` writes it.
        dense_reward: sum of the turn rewards of an episode that reaches the goal, besides its outcome of 1; 0: none.
            Progress is `max(0, 1 - d / d0)`, with `d` and `d0` the lengths of the shortest solution now and at the
            start, and 0 without a solution. A turn earns `dense_reward` times the progress it made, so that the turns
            of any episode sum to `dense_reward` times its last progress.
        no_action_turns: number of consecutive turns without an action that ends the episode.
        max_actions_per_turn: maximum that rows may allow; None: no maximum.

    Raises:
        ConfigError: an argument out of range, also in the row's `extra`.
        DataError: the row has no valid game, or allows too many actions per turn.
    """
    if not 0 <= dense_reward <= 1:
        raise ConfigError(f"dense_reward must be 0 to 1, so that the outcome counts most, got {dense_reward!r}")
    if no_action_turns < 1:
        raise ConfigError(f"no_action_turns must be at least 1, got {no_action_turns!r}")
    if max_actions_per_turn is not None and max_actions_per_turn < 1:
        raise ConfigError(f"max_actions_per_turn must be at least 1, or null for any, got {max_actions_per_turn!r}")
    presentation = Presentation.of(row)
    if max_actions_per_turn is not None and presentation.actions_per_turn > max_actions_per_turn:
        raise DataError(
            f"a row may allow at most {max_actions_per_turn} actions a turn (env_config.max_actions_per_turn), got "
            f"{presentation.actions_per_turn}; make the rows anew, with the option actions_per_turn"
        )
    tool = ActTool(load_game(row.ground_truth), presentation)
    return TextGameEnv(row, tool, dense_reward=dense_reward, no_action_turns=no_action_turns)
