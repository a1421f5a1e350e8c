"""Tools from plain functions: type hints and the docstring become the schema that the policy sees.

@tool
def lookup(country: str, year: int = 2024) -> str:
    '''Returns the capital of a country.

    Args:
        country: its English name.
        year: the capital in this year.
    '''
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.schema_check import explain
from verl_agentic.base.types import Tool, ToolResult

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """A tool that calls a function. The object can still be called like the function."""

    def __init__(self, function: Callable[P, R]) -> None:
        """Reads the function; see `tool`."""
        from verl_agentic.base.tools.function_arguments import arguments_of  # pydantic takes a while to import

        functools.update_wrapper(self, function)
        self._function = function
        self._arguments = arguments_of(function)
        self.name = self._arguments.name
        self.schema = self._arguments.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function directly, without validation."""
        return self._function(*args, **kwargs)

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Validates and converts the arguments, calls the function and returns its value as text.

        Only coroutine functions run in the event loop, others in a thread. Exceptions of the function are raised:
        `ToolEnv` shows them to the policy, or voids the episode (`errors.is_infrastructure`).
        """
        bound = self._arguments.bind(arguments)
        if not isinstance(bound, inspect.BoundArguments):
            return ToolResult(explain(self.name, bound), is_error=True, error_kind="wrong_arguments")
        if inspect.iscoroutinefunction(self._function):
            return self._to_result(await self._function(*bound.args, **bound.kwargs))
        return await in_thread(lambda: self._to_result(self._function(*bound.args, **bound.kwargs)))

    def _to_result(self, value: Any) -> ToolResult:
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        if isinstance(value, ToolResult):
            return value
        if type(value) is str:
            return ToolResult(value)
        try:
            plain = to_jsonable_python(value)
        except (PydanticSerializationError, ValueError) as cause:
            raise TypeError(
                f"tool {self.name!r} must return text, a ToolResult or a value for JSON, got {type(value).__name__}; "
                "convert it to text"
            ) from cause
        return ToolResult(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(*, timeout_s: float) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, *, timeout_s: float | None = None) -> Any:
    """Makes a tool of a function: `@tool` or `@tool(timeout_s=60)`.

    The function's name is the tool's name. The first paragraph of the docstring is the description, a Google-style
    section `Args:` describes the arguments. Every argument needs a type hint that pydantic can validate and write as
    a JSON schema: scalars, `Literal`, enums, lists, dicts, optional values, dataclasses, pydantic models. Arguments
    with a default are optional. Pydantic validates and converts the arguments of a call. Wrong arguments are an error
    that the policy reads.

    The function returns text, a `ToolResult`, or a value that JSON can hold. A plain function runs in a thread, a
    coroutine function is awaited.

    Args:
        function: a function or a bound method.
        timeout_s: deadline of one call, in seconds; that of `ToolEnv` if not given.

    Raises:
        ConfigError: `*args`, `**kwargs`, a missing or unsupported type hint, a name that is not allowed, or a described
            argument that does not exist.
    """
    if timeout_s is not None and not timeout_s > 0:
        raise ConfigError(f"timeout_s of a tool must be positive, got {timeout_s!r}; raise it")

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        new_tool = FunctionTool(function)
        if timeout_s is not None:
            new_tool.timeout_s = timeout_s  # pyright: ignore[reportAttributeAccessIssue]
        return new_tool

    return make if function is None else make(function)


def to_tool(tool_or_function: Tool | Callable[..., Any]) -> Tool:
    """Returns a tool unchanged, and a function as a tool.

    Raises:
        ConfigError: it is not a tool or a function, or the function cannot be a tool; see `tool`.
    """
    return (
        cast("Tool", tool_or_function)
        if hasattr(tool_or_function, "schema")
        else tool(cast("Callable[..., Any]", tool_or_function))
    )
