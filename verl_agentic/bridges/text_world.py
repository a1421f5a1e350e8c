"""Environments whose states and actions are texts: a foreign world behind one tool, `act`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import DataError, is_infrastructure
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolCall, ToolResult

TOOL = "act"


@dataclass(frozen=True, kw_only=True)
class WorldTurn:
    """The result of an action."""

    text: str
    """The next observation, or what is wrong with the action."""
    is_valid: bool = True
    """False if the world refused the action."""
    is_over: bool = False
    is_won: bool = False
    """Whether the task is solved completely; partial success goes into `info`."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Numbers that say more about the end of an episode."""


class TextWorld(Protocol):
    """A world of one episode. Equal rows and actions give equal texts; methods may block."""

    @property
    def actions(self) -> Sequence[str] | None:
        """All actions, if they are constant; None for free text. The first one must not solve a task by itself."""
        ...

    def reset(self) -> str:
        """Starts the world and returns the prompt. It is called once."""
        ...

    def step(self, action: str) -> WorldTurn:
        """Carries out an action; nonsense is a turn that is not valid. An exception ends the episode, and loses it."""
        ...

    def close(self) -> None:
        """Releases everything; it may be called without `reset`."""
        ...


class ExpertWorld(TextWorld, Protocol):
    """A world that knows a good action in every state."""

    def expert(self) -> str | None:
        """Returns the next action of a solution; None without one."""
        ...

    def random_action(self, rng: random.Random) -> str:
        """Returns a possible action."""
        ...


class TextWorldEnv(ToolEnv):
    """A text world in which the policy acts in every turn."""

    def __init__(self, row: EnvRow, world: TextWorld) -> None:
        self._act = _Act(world)
        # One call after the other: the order of actions matters.
        super().__init__(row, [self._act], max_parallel_calls=1)
        self._world = world

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row, after the world is reset.

        Raises:
            DataError: the installed package makes another world of the row.
        """
        text = await in_thread(self._world.reset)
        if text != self.row.prompt[-1].content:
            raise DataError(
                f"the row has a prompt of another version of its package, got {self.row.ground_truth}, whose world now "
                f"begins with {text[:200]!r}; make the rows anew"
            )
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        """Executes the calls in order; a turn without calls ends the episode."""
        if not action.tool_calls:
            return Observation(stop=StopReason.NO_ACTION, info={"no_action_turns": 1.0})
        self._act.invalid_actions = sum(call.error is not None for call in action.tool_calls)
        observation = await super().step(action)
        info = {"invalid_actions": float(self._act.invalid_actions)} if self._act.invalid_actions else {}
        stop = StopReason.ENV_DONE if self._act.last is not None and self._act.last.is_over else None
        return replace(observation, stop=stop, info={**observation.info, **info})

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the task is solved, else 0."""
        last = self._act.last
        return Reward(0.0) if last is None else Reward(float(last.is_over and last.is_won), info=last.info)

    async def close(self) -> None:
        """Closes the world."""
        await in_thread(self._world.close)


class _Act:
    """The tool `act`: executes the argument `action`."""

    name = TOOL

    def __init__(self, world: TextWorld) -> None:
        self._world = world
        self.last: WorldTurn | None = None
        self.invalid_actions = 0

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `action`; an enum where the actions are always the same."""
        actions = self._world.actions
        action_schema = {"type": "string"} if actions is None else {"type": "string", "enum": list(actions)}
        parameters = {"type": "object", "properties": {"action": action_schema}, "required": ["action"]}
        function = {"name": self.name, "description": "Plays an action.", "parameters": parameters}
        return {"type": "function", "function": function}

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the next observation."""
        action = arguments.get("action")
        if not isinstance(action, str) or set(arguments) != {"action"}:
            return self._refuse_action('Error: the arguments must be {"action": "<text>"}')
        if self.last is not None and self.last.is_over:
            return ToolResult("Error: the episode is over; nothing was done", is_error=True)
        try:
            turn = await in_thread(self._world.step, action)
        except Exception as cause:  # foreign code, with an action of the policy: its state is no longer known
            if is_infrastructure(cause):
                raise
            text = f"Error: the world failed, got {type(cause).__name__}: {cause}; the episode is over"
            turn = WorldTurn(text=text, is_valid=False, is_over=True, info={"world_failed": 1.0})
        self.last = turn
        return ToolResult(turn.text) if turn.is_valid else self._refuse_action(turn.text)

    def _refuse_action(self, text: str) -> ToolResult:
        self.invalid_actions += 1
        return ToolResult(text, is_error=True, error_kind="wrong_arguments")


def act(action: str) -> Message:
    """Returns the message of an action."""
    return Message("assistant", "", tool_calls=(ToolCall(TOOL, {"action": action}),))


def demonstrator_of(
    make_world: Callable[[EnvRow], ExpertWorld],
) -> Callable[..., Callable[[Sequence[Message]], Message]]:
    """Returns the `demonstrator` of a package: policies of mixed quality, see `expert_policy`."""

    def demonstrator(
        row: EnvRow, *, rng: random.Random, skilled: float = 0.5, slip: float = 0.0
    ) -> Callable[[Sequence[Message]], Message]:
        return expert_policy(partial(make_world, row), rng=rng, skilled=skilled, slip=slip)

    return demonstrator


def expert_policy(
    make_world: Callable[[], ExpertWorld], *, rng: random.Random | None = None, skilled: float = 1.0, slip: float = 0.0
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far, by the expert of a world of its own.

    Args:
        make_world: makes the world of the row.
        rng: source of every choice; needed unless `skilled` is 1 and `slip` is 0.
        skilled: probability that the episode follows the expert; otherwise all actions are random.
        slip: probability of a random action in place of the expert's, for each action.
    """
    rng = rng or random.Random(0)
    is_skilled = rng.random() < skilled
    world, num_played = _start_world(make_world), 0

    def next_message(messages: Sequence[Message]) -> Message:
        nonlocal world, num_played
        played = _list_actions(messages)
        if len(played) < num_played:  # another conversation
            world, num_played = _start_world(make_world), 0
        for action in played[num_played:]:
            if world.step(action).is_over:
                break
        num_played = len(played)
        best = world.expert() if is_skilled and rng.random() >= slip else None
        return act(world.random_action(rng) if best is None else best)

    return next_message


def solved_row(
    world: ExpertWorld, *, bridge: str, task: str, number: int, max_steps: int, **truth: Any
) -> EnvRow | None:
    """Returns the row of a world, or None if its expert does not solve it; closes the world.

    Args:
        world: a new world.
        bridge: name of the package.
        task: name of the task.
        number: seed of the world.
        max_steps: maximum actions of the expert.
        truth: more of the row's ground truth, beside `task` and `seed`.
    """
    try:
        prompt = world.reset()
        for steps in range(1, max_steps + 1):
            action = world.expert()
            turn = None if action is None else world.step(action)
            if turn is None or (turn.is_over and not turn.is_won):
                return None
            if turn.is_won:
                return EnvRow(
                    prompt=(Message("user", prompt),),
                    ground_truth={"task": task, "seed": number, **truth},
                    data_source=bridge,
                    extra={"task_id": f"{task}-{number}", "task": task, "expert_actions": steps},
                )
        return None
    finally:
        world.close()


def _start_world(make_world: Callable[[], ExpertWorld]) -> ExpertWorld:
    world = make_world()
    world.reset()
    return world


def _list_actions(messages: Sequence[Message]) -> list[str]:
    calls = (call for message in messages for call in message.tool_calls if call.name == TOOL and call.error is None)
    return [action for call in calls if isinstance(action := call.arguments.get("action"), str)]
