"""The environment `trl`: what `GRPOTrainer(tools=, environment_factory=, reward_funcs=)` of TRL 1.16 takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, is_infrastructure
from verl_agentic.base.registry import load_address
from verl_agentic.base.tools.function_tool import FunctionTool
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import UNSCORED, Message, Reward, ToolResult

from .rewards import RewardFunction, check_function, name_of, reward_of

Factory = Callable[[], Any]
_EXAMPLE = "verl_agentic.bridges.trl.example"
_pools: dict[Factory, list[Any]] = {}
"""Instances that no episode uses: as in TRL, they are constructed once and reset often."""


class TrlTool(FunctionTool[..., Any]):
    """A function as TRL calls it: its result is `str(result)`, and an exception is shown as `{'error': ...}`."""

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See `FunctionTool.call`. Failures of the infrastructure are raised, so that the episode becomes void."""
        try:
            return await super().call(arguments)
        except Exception as cause:
            if is_infrastructure(cause):
                raise
            return ToolResult(str({"error": str(cause)}), is_error=True, error_kind="tool_raised")

    def _to_result(self, value: Any) -> ToolResult:
        return ToolResult(_text_of(value))


class TrlEnv(ToolEnv):
    """One rollout of TRL."""

    def __init__(
        self,
        row: EnvRow,
        *,
        factory: Factory | None,
        tools: Sequence[Callable[..., Any]],
        rewards: Sequence[tuple[str, float, RewardFunction]],
    ) -> None:
        super().__init__(row, [], max_parallel_calls=1)  # TRL calls the tools of a turn one after the other
        self._columns: Mapping[str, Any] = row.ground_truth
        self._factory, self._functions, self._rewards = factory, tools, rewards
        self._instance: Any = None
        self._prompt = row.prompt

    async def start(self) -> tuple[Message, ...]:
        """Resets an instance of the environment; text that `reset` returns is appended to the prompt."""
        methods: list[Callable[..., Any]] = []
        if self._factory is not None:
            free = _pools.setdefault(self._factory, [])
            self._instance = instance = free.pop() if free else await in_thread(self._factory)
            reset_result = await in_thread(lambda: instance.reset(**self._columns))
            if reset_result is not None:
                *before, last = self._prompt
                self._prompt = (*before, replace(last, content=last.content + _text_of(reset_result)))
            methods = [getattr(instance, name) for name in _method_names(type(instance))]
        self.use_tools([TrlTool(function) for function in (*self._functions, *methods)])
        return self._prompt

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the sum of all rewards; the outcome is that of `get_reward`, or else of the first function. Without
        both, a rubric gives it."""
        is_text = isinstance(self._columns.get("prompt"), str)
        completion = transcript.messages[len(self._prompt) :]
        get_reward = getattr(self._instance, "get_reward", None)
        sources = [*([_own_reward(self._instance)] if get_reward is not None else []), *self._rewards]
        reward = UNSCORED
        if sources:
            reward = await reward_of(
                sources,
                prompt=self._prompt[-1].content if is_text else [message.to_dict() for message in self._prompt],
                completion="".join(m.content for m in completion) if is_text else [m.to_dict() for m in completion],
                columns=self._columns,
                environment=self._instance,
            )
        is_in_use = any(message.error_kind == "tool_timeout" for message in transcript.messages)
        if self._factory is not None and not is_in_use:  # after a failure nothing uses the instance again, either
            _pools[self._factory].append(self._instance)
            self._instance = None
        return reward


def make_env(
    row: EnvRow,
    *,
    environment_factory: str | Factory | Mapping[str, str | Factory] | None = None,
    tools: Sequence[str | Callable[..., Any]] = (),
    reward_funcs: str | RewardFunction | Sequence[str | RewardFunction] = (),
    reward_weights: Sequence[float] | None = None,
) -> TrlEnv:
    """Returns the environment of one episode. Without options it is the example.

    The options are those of TRL's `GRPOTrainer`. Functions and classes may be given as addresses (`module:name`,
    `path.py:name`).

    Args:
        row: a row of `rows_of`.
        environment_factory: makes an environment: a class whose public methods are tools. A mapping has several, of
            which each row chooses one in its column `environment`.
        tools: functions.
        reward_funcs: functions of TRL's signature.
        reward_weights: weights of `reward_funcs`; 1 if not given. The environment's own `get_reward` has weight 1.

    Raises:
        ConfigError: an address does not exist, or a function cannot be used.
        DataError: the row's ground truth is no columns, or they name an unknown environment.
    """
    if not environment_factory and not tools and not reward_funcs:
        environment_factory, reward_funcs = f"{_EXAMPLE}:GuessNumber", f"{_EXAMPLE}:few_guesses"
        reward_weights = (0.1,)
    if not isinstance(row.ground_truth, Mapping):
        raise DataError(f"the ground truth of a row must be its columns, got {row.ground_truth!r}; use trl.rows_of")
    factory = environment_factory
    if isinstance(factory, Mapping):
        name: Any = row.ground_truth.get("environment")
        if name not in factory:
            raise DataError(f"the row's environment must be one of {sorted(factory)}, got {name!r}; change the column")
        factory = factory[name]
    reward_sources = (
        reward_funcs if isinstance(reward_funcs, Sequence) and not isinstance(reward_funcs, str) else [reward_funcs]
    )
    functions = [_resolve_address(source, "reward function") for source in reward_sources]
    weights = [1.0] * len(functions) if reward_weights is None else list(reward_weights)
    if len(weights) != len(functions):
        raise ConfigError(f"reward_weights must be one per function, got {weights} for {len(functions)}; change them")
    for function in functions:
        check_function(function)
    return TrlEnv(
        row,
        factory=None if factory is None else _resolve_address(factory, "environment_factory"),
        tools=[_resolve_address(tool, "tool") for tool in tools],
        rewards=[(name_of(function), weight, function) for function, weight in zip(functions, weights, strict=True)],
    )


def _resolve_address(source: Any, kind: str) -> Any:
    return load_address(source, what=kind) if isinstance(source, str) else source


def _method_names(cls: type) -> list[str]:
    names = (name for name, _ in inspect.getmembers(cls, predicate=inspect.isfunction))
    return [name for name in names if name not in ("reset", "get_reward") and not name.startswith("_")]


def _own_reward(instance: Any) -> tuple[str, float, RewardFunction]:
    async def get_reward(**_: Any) -> list[Any]:
        method = instance.get_reward
        return [await method() if inspect.iscoroutinefunction(method) else await in_thread(method)]

    return type(instance).__name__, 1.0, get_reward


def _text_of(value: Any) -> str:
    """Returns a result of TRL as text; a list may be content blocks."""
    if isinstance(value, list) and value and all(isinstance(block, Mapping) and "type" in block for block in value):
        return "".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in value)
    return str(value)
