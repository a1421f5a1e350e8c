"""Outcome components as plain reward functions of verl, for any of its agent loops and for use without verl:

reward:
  custom_reward_function:
    path: pkg://verl_agentic.graders.functions
    name: search_r1
    reward_kwargs: {}          # options of the component

    from verl_agentic.graders.functions import exact_match
    exact_match("nq", "Paris", ["Paris"])["score"]  # 1.0

All outcome components are available, except those that need a group or the environment (`env`); so are models that can
be an outcome (`judge`, `rm`). Each has verl's signature `(data_source, solution_str, ground_truth, extra_info=None,
**options)` and returns `score`, `acc` (1 if the task is solved, see `Graded.solved`) and the component's own numbers.
Components that wait (for sandboxes, models, algebra) are coroutine functions. If a component abstains, `score` is 0 and
`void_reason` has the reason; verl then masks the row out of the loss.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from verl_agentic.rewards.component import Component, ComponentType, component_names, load_component
from verl_agentic.rewards.compute_score import sample_of

_FROM_VERL = frozenset({"reward_router_address", "reward_model_tokenizer", "sandbox_fusion_url"}) | frozenset(
    {"concurrent_semaphore", "memory_limit_mb"}
)
"""Arguments that verl always passes to reward functions."""


def function_names() -> list[str]:
    """Returns the names of all functions: the outcome components that judge one sample."""
    return [name for name in component_names() if _is_function(load_component(name))]


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_") or name not in component_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    component_type = load_component(name)
    if not _is_function(component_type):
        raise AttributeError(
            f"{name!r} is no reward function by itself, got a component of kind {component_type.kind!r} and scope "
            f"{component_type.scope!r}; use it in a rubric, or take one of {function_names()}"
        )
    return _make_function(name)


def _is_function(component_type: ComponentType) -> bool:
    return (
        component_type.name != "env"
        and component_type.scope == "sample"
        and (component_type.kind == "outcome" or bool(component_type.outcome_options))
    )


@functools.cache
def _make_function(name: str) -> Callable[..., Any]:
    component_type = load_component(name)

    def reward(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        component = _make_component(component_type, options)
        return _to_result(component, component(sample_of(data_source, solution_str, ground_truth, extra_info)))

    async def reward_later(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        component = _make_component(component_type, options)
        return _to_result(component, await component(sample_of(data_source, solution_str, ground_truth, extra_info)))

    function = reward_later if component_type.is_async else reward
    function.__name__ = function.__qualname__ = name
    function.__doc__ = inspect.getdoc(component_type.function)
    return function


def _make_component(component_type: ComponentType, options: Mapping[str, Any]) -> Component:
    return component_type.make({key: value for key, value in options.items() if key not in _FROM_VERL}, kind="outcome")


def _to_result(component: Component, verdict: Any) -> dict[str, Any]:
    graded = component.checked(verdict)
    numbers = {name: float(graded.info.get(name, 0.0)) for name in component.type.info}
    if graded.value is None:
        return {**numbers, "score": 0.0, "acc": 0.0, "void_reason": f"{component.type.name} abstained"}
    return {**numbers, "score": graded.value, "acc": component.solved_share(graded)}
