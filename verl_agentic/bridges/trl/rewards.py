"""Reward functions of TRL's signature: `reward_func(prompts, completions, **columns) -> list[float | None]`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.base.types import Reward

RewardFunction = Callable[..., Any]
_NOT_COLUMNS = ("prompt", "completion", "completion_ids")
_UNAVAILABLE = {
    "completion_ids": "score lengths with the component `overlong`",
    "trainer_state": "change rewards over training with a schedule of the rubric",
}
"""Arguments that only TRL's trainer has -> what to use instead."""


def check_function(function: RewardFunction) -> None:
    """Raises ConfigError if a reward function needs an argument that only TRL's trainer has."""
    parameters = inspect.signature(function).parameters
    for name, instead in _UNAVAILABLE.items():
        if name in parameters and parameters[name].default is inspect.Parameter.empty:
            raise ConfigError(f"reward function {name_of(function)!r} needs {name}, which no episode has; {instead}")


def name_of(function: RewardFunction) -> str:
    """Returns the name of a function in metrics."""
    return getattr(function, "__name__", type(function).__name__)


async def reward_of(
    sources: Sequence[tuple[str, float, RewardFunction]],
    *,
    prompt: Any,
    completion: Any,
    columns: Mapping[str, Any],
    environment: Any,
) -> Reward:
    """Returns the weighted sum of all rewards that apply: the first is the outcome, the others are shaping.

    Args:
        sources: name, weight and function of each reward. They are called with lists of one.
        prompt: messages or text.
        completion: messages or text.
        columns: of the dataset row.
        environment: the instance of the episode, or None.

    Raises:
        ScoringError: no function applies (all return None), or one returns something else than one number.
    """
    info: dict[str, float] = {}
    details: dict[str, Any] = {}
    arguments = {key: [value] for key, value in columns.items() if key not in _NOT_COLUMNS}
    arguments |= {"log_metric": info.__setitem__, "log_extra": lambda name, values: details.update({name: values[0]})}
    if environment is not None:
        arguments["environments"] = [environment]
    values: dict[str, float] = {}
    for name, weight, function in sources:
        scores = await _call_function(function, prompts=[prompt], completions=[completion], **arguments)
        if not isinstance(scores, Sequence) or len(scores) != 1:
            raise ScoringError(
                f"reward function {name!r} must return one reward per completion, got {scores!r}; fix it"
            )
        if scores[0] is not None and not math.isnan(scores[0]):
            values[name] = weight * float(scores[0])
    if not values:
        raise ScoringError(f"no reward function applies, got None from {[name for name, _, _ in sources]}; add one")
    outcome, *_ = values
    return Reward(values.pop(outcome), parts=values, info=info, details=details)


async def _call_function(function: RewardFunction, **arguments: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    return await in_thread(lambda: function(**arguments))
