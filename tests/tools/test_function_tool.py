"""Tools from functions: schema, validation, threads, results, and what cannot be a tool."""

from __future__ import annotations

import asyncio
import inspect
import json
import keyword
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from verl_agentic import ConfigError, EnvError, EnvRow, Message, ToolCall, ToolEnv, ToolResult, tool
from verl_agentic.base.tools.function_tool import FunctionTool
from verl_agentic.base.tools.schema_check import ArgumentSchema
from verl_agentic.base.types import Action, Observation

ROW = EnvRow(prompt=(Message("user", "q"),))


class Unit(Enum):
    KM = "km"
    MILE = "mile"


class Place(BaseModel):
    name: str
    tags: list[str] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Opaque:
    """A type that JSON does not have."""


def step(env: ToolEnv, *calls: ToolCall) -> Observation:
    return asyncio.run(env.step(Action(turn=0, text="", content="", tool_calls=calls)))


def call(made: FunctionTool, **arguments: Any) -> ToolResult:
    return asyncio.run(made.call(arguments))


@tool
def distance(start: str, end: Place, unit: Unit = Unit.KM, via: Optional[list[str]] = None) -> str:  # noqa: UP045
    """Returns the distance between
    two places.

    It is that of the road.

    Args:
        start (str): where the trip starts,
            or the word: here.
        end: where it ends

    Returns:
        unit: not an argument.
    """
    return f"{start} {end!r} {unit} {via}"


def test_type_hints_and_docstring_become_the_schema() -> None:
    assert (distance.name, distance.schema["type"]) == ("distance", "function")
    function = distance.schema["function"]
    assert function["name"] == "distance" and function["description"] == "Returns the distance between two places."
    parameters = function["parameters"]
    tags = {"type": "array", "items": {"type": "string"}, "default": []}
    place = {"title": "Place", "properties": {"name": {"type": "string"}, "tags": tags}, "required": ["name"]}
    assert parameters == {
        "type": "object",
        "properties": {
            "start": {"type": "string", "description": "where the trip starts, or the word: here."},
            "end": {"type": "object", **place, "description": "where it ends"},
            "unit": {"type": "string", "title": "Unit", "enum": ["km", "mile"], "default": "km"},
            "via": {"type": "array", "items": {"type": "string"}, "default": None, "nullable": True},
        },
        "required": ["start", "end"],
        "additionalProperties": False,
    }
    assert list(parameters["properties"]) == ["start", "end", "unit", "via"]  # the function's order


def test_arguments_are_converted_and_the_functions_own_defaults_hold() -> None:
    result = call(distance, start="Ulm", end={"name": "Rom"}, unit="mile")
    assert result == ToolResult("Ulm Place(name='Rom', tags=[]) Unit.MILE None")
    assert distance("a", Place(name="b")) == "a Place(name='b', tags=[]) Unit.KM None"  # still a function


def test_annotated_constraints_hold_and_the_docstring_may_be_missing() -> None:
    @tool
    def pick(count: Annotated[int, Field(ge=1, description="how many")], /, *, seed: int = 3) -> list[int]:
        return [count, seed]

    function = pick.schema["function"]
    assert function["description"] == ""
    assert function["parameters"]["properties"]["count"] == {"type": "integer", "minimum": 1, "description": "how many"}
    assert call(pick, count="2").content == "[2, 3]"
    assert call(pick, count=0).content == (
        "Error: the arguments of 'pick' do not fit its schema\n"
        "- $.count: Input should be greater than or equal to 1, got 0"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, ["$.start: Field required, got nothing", "$.end: Field required, got nothing"]),
        ({"start": 1, "end": {"name": "b"}}, ["$.start: Input should be a valid string, got 1"]),
        ({"start": "a", "end": {"name": "b", "tags": [2]}}, ["$.end.tags[0]: Input should be a valid string, got 2"]),
        ({"start": "a", "end": {"name": "b"}, "unit": "yd"}, ["$.unit: Input should be 'km' or 'mile', got \"yd\""]),
        ({"start": "a", "end": {"name": "b"}, "a1": 3}, ["$.a1: no such name (known: start, end, unit, via), got 3"]),
    ],
    ids=["missing", "wrong type", "inside", "not in the enum", "unknown"],
)
def test_wrong_arguments_are_an_error_for_the_policy(arguments: dict[str, Any], told: list[str]) -> None:
    env = ToolEnv(ROW, [distance])
    observation = step(env, ToolCall("distance", arguments))
    head = "Error: the arguments of 'distance' do not fit its schema"
    assert observation.messages[0].content == "\n".join([head, *(f"- {line}" for line in told)])
    assert observation.info == {"tool_calls": 1.0, "tool_errors": 1.0, "call_error/wrong_arguments": 1}


def test_numbers_that_json_does_not_have_are_refused() -> None:
    @tool
    def half(x: float) -> float:
        return x / 2

    assert call(half, x=float("nan")).error_kind == "wrong_arguments"
    assert call(half, x=3).content == "1.5"


def test_functions_methods_and_tools_can_be_given_to_an_environment() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.count = start

        async def add(self, number: int) -> int:
            """Adds a number."""
            self.count += number
            return self.count

    def lookup(word: str) -> str:
        return word.upper()

    counters = Counter(0), Counter(10)
    envs = [ToolEnv(ROW, tools=[distance, lookup, counter.add, tool(timeout_s=5)(len_of)]) for counter in counters]
    assert [t.name for t in envs[0].tools] == ["distance", "lookup", "add", "len_of"]
    assert envs[0].tools[0] is distance and envs[0].tools[3].timeout_s == 5  # pyright: ignore
    calls = ToolCall("add", {"number": 2}), ToolCall("lookup", {"word": "a"}), ToolCall("len_of", {"text": "abc"})
    assert [[m.content for m in step(env, *calls).messages] for env in envs] == [["2", "A", "3"], ["12", "A", "3"]]
    assert envs[0].tools[2].schema is envs[1].tools[2].schema  # read once for all episodes
    with pytest.raises(ConfigError, match="tools"):
        ToolEnv(EnvRow(prompt=(), extra={"tool_selection": ["nope"]}), [lookup])


def len_of(text: str) -> int:
    return len(text)


async def test_a_plain_function_runs_in_a_thread_and_a_coroutine_function_in_the_loop() -> None:
    release, threads = threading.Event(), []

    @tool
    def blocking() -> bool:
        threads.append(threading.current_thread())
        return release.wait(10)  # set by the event loop, which must not be blocked

    @tool
    async def waiting() -> str:
        threads.append(threading.current_thread())
        release.set()
        return "set"

    results = await asyncio.gather(blocking.call({}), waiting.call({}))
    assert [result.content for result in results] == ["true", "set"]
    assert threads[0] is not threading.main_thread() and threads[1] is threading.main_thread()


async def test_a_function_that_does_not_end_is_an_error_and_does_not_hold_up_the_loop() -> None:
    release = threading.Event()

    def stuck() -> bool:
        return release.wait(30)

    env = ToolEnv(ROW, [tool(timeout_s=0.05)(stuck)])
    observation = await env.step(Action(turn=0, text="", content="", tool_calls=(ToolCall("stuck", {}),)))
    release.set()
    assert observation.messages[0].content == "Error: no result within 0.05 s"


@pytest.mark.parametrize("is_async", [False, True])
def test_exceptions_of_a_function_follow_the_rules_for_tools(is_async: bool) -> None:
    def fails(kind: Literal["key", "net", "exit"]) -> str:
        raise {"key": KeyError("Atlantis"), "net": ConnectionError("gone"), "exit": SystemExit(1)}[kind]

    async def fails_later(kind: Literal["key", "net", "exit"]) -> str:
        return fails(kind)

    fails_later.__name__ = "fails"
    env = ToolEnv(ROW, [fails_later if is_async else fails])
    for kind, text in (("key", "KeyError: 'Atlantis'"), ("exit", "SystemExit: 1")):
        (message,) = step(env, ToolCall("fails", {"kind": kind})).messages
        assert message.content == f"Error: 'fails' failed on these arguments: {text}"
        assert message.error_kind == "tool_raised"
    with pytest.raises(EnvError, match="ConnectionError: gone"):
        step(env, ToolCall("fails", {"kind": "net"}))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (ToolResult("no", is_error=True), "no"),
        (None, "null"),
        ([1, {"ä": 2.5}], '[1, {"ä": 2.5}]'),
        (Place(name="a"), '{"name": "a", "tags": []}'),
        (Point(1), '{"x": 1, "y": 0}'),
        (Unit.KM, "km"),
    ],
    ids=str,
)
def test_results_become_text(value: Any, content: str) -> None:
    @tool
    def give() -> Any:
        return value

    result = call(give)
    assert result.content == content and result.is_error == isinstance(value, ToolResult)


def test_a_result_that_json_cannot_hold_is_an_error_of_the_tool() -> None:
    def give() -> Any:
        return Opaque()

    (message,) = step(ToolEnv(ROW, [give]), ToolCall("give", {})).messages
    assert "Opaque" in message.content
    assert message.error_kind == "tool_raised"


def _variadic(*words: str) -> str: ...
def _keywords(**words: str) -> str: ...
def _no_hint(word) -> str: ...
def _method(self, word: str) -> str: ...
def _opaque(word: Opaque) -> str: ...
def _callback(word: list[Callable[[int], int]]) -> str: ...
def _unknown_hint(word: NoSuchType) -> str: ...  # noqa: F821  # pyright: ignore
def _generator(word: str):
    yield word


def _wrong_docs(word: str) -> str:
    """Looks up a word.

    Args:
        wrod: the word.
    """
    return word


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_variadic, "'_variadic'"),
        (_keywords, "words"),
        (_no_hint, "'_no_hint'"),
        (_method, "'self'"),
        (_opaque, "'word'"),
        (_callback, r"must have a type with a JSON schema, got list\[.*Callable.*\]; use str"),
        (_unknown_hint, "NoSuchType"),
        (_generator, "generator"),
        (_wrong_docs, "'wrod'"),
        (lambda: "x", "<lambda>"),
        (Opaque(), "Opaque"),
    ],
    ids=lambda value: getattr(value, "__name__", "") if callable(value) else "",
)  # fmt: skip
def test_what_cannot_be_a_tool_is_refused_when_it_is_made(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tool(function)
    with pytest.raises(ConfigError, match=message):
        ToolEnv(ROW, [function])


def test_a_timeout_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        tool(timeout_s=0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TYPES: dict[str, tuple[Any, st.SearchStrategy[Any], Any]] = {
    "int": (int, st.integers(), "x"),
    "str": (str, st.text(), 3),
    "bool": (bool, st.booleans(), "maybe"),
    "float": (float, FINITE, "x"),
    "int | None": (int | None, st.none() | st.integers(), "x"),
    "list[str]": (list[str], st.lists(st.text()), [1]),
    "dict[str, int]": (dict[str, int], st.dictionaries(st.text(), st.integers()), {"a": "x"}),
    "Literal": (Literal["a", 2], st.sampled_from(["a", 2]), "b"),
    "Unit": (Unit, st.sampled_from(["km", "mile"]), "yd"),
    "Place": (Place, st.fixed_dictionaries({"name": st.text()}, optional={"tags": st.lists(st.text())}), {}),
    "Point": (Point, st.fixed_dictionaries({"x": st.integers()}), 7),
}
"""Type -> the hint, JSON values that fit, and one that does not."""
NAMES = st.from_regex(r"[a-z_][a-z_0-9]{0,6}", fullmatch=True) | st.sampled_from(
    ["schema", "json", "copy", "self", "model_config", "title", "name", "a0", "a1", "_", "__class__"]
)


@dataclass
class Signature:
    function: Callable[..., Any]
    kinds: dict[str, str]
    """Argument -> its key in `TYPES`."""
    required: list[str]


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Draws functions with 0 to 4 arguments of every kind, which return what they were given."""
    names = draw(st.lists(NAMES.filter(lambda name: not keyword.iskeyword(name)), max_size=4, unique=True))
    kinds = {name: draw(st.sampled_from(sorted(TYPES))) for name in names}
    num_required, num_positional = draw(st.integers(0, len(names))), draw(st.integers(0, len(names)))
    keyword_from = draw(st.integers(num_positional, len(names)))
    written: list[str] = []
    for index, name in enumerate(names):
        if index == num_positional > 0:
            written.append("/")
        if index == keyword_from:
            written.append("*")
        written.append(f"{name}: HINTS[{name!r}]" + ("" if index < num_required else " = None"))
    if num_positional == len(names) > 0:
        written.append("/")
    space: dict[str, Any] = {"HINTS": {name: TYPES[kind][0] for name, kind in kinds.items()}}
    body = ", ".join(f"{name!r}: {name}" for name in names)
    source = f"def made({', '.join(written)}):\n    return {{{body}}}"
    exec(compile(source, "made", "exec", dont_inherit=True), space)
    return Signature(function=space["made"], kinds=kinds, required=names[:num_required])


@given(signature=signatures(), data=st.data())
def test_every_function_with_hints_is_a_tool_that_gets_what_its_schema_says(signature: Signature, data: Any) -> None:
    made = tool(signature.function)
    parameters = made.schema["function"]["parameters"]
    json.dumps(made.schema)
    assert list(parameters["properties"]) == list(signature.kinds)
    assert parameters.get("required", []) == signature.required
    chosen = [name for name in signature.kinds if name in signature.required or data.draw(st.booleans())]
    arguments = {name: data.draw(TYPES[signature.kinds[name]][1]) for name in chosen}
    assert ArgumentSchema(parameters).mismatches(arguments) == []
    result = asyncio.run(made.call(arguments))
    seen = json.loads(result.content)
    assert not result.is_error and list(seen) == list(signature.kinds)
    for name, value in seen.items():
        kind = signature.kinds[name]
        default = {"Place": {"tags": []}, "Point": {"y": 0}}.get(kind, {})
        expected = {**default, **arguments[name]} if default and name in arguments else arguments.get(name)
        assert value == expected and type(value) in (type(expected), float)


@given(signature=signatures(), data=st.data())
def test_one_wrong_argument_is_an_error_that_names_it_and_the_function_is_not_called(
    signature: Signature, data: Any
) -> None:
    called: list[Any] = []

    def recording(*args: Any, **kwargs: Any) -> str:
        called.append((args, kwargs))
        return "called"

    recording.__name__ = "recording"
    recording.__signature__ = inspect.signature(signature.function)  # pyright: ignore
    recording.__annotations__ = dict(signature.function.__annotations__)
    made = tool(recording)
    arguments = {name: data.draw(TYPES[kind][1]) for name, kind in signature.kinds.items()}
    wrong = data.draw(st.sampled_from([*signature.kinds, "no such argument"]))
    mistake = "missing" if wrong in signature.required and data.draw(st.booleans()) else "value"
    if mistake == "missing":
        del arguments[wrong]
    else:
        arguments[wrong] = TYPES[signature.kinds[wrong]][2] if wrong in signature.kinds else 1
    result = asyncio.run(made.call(arguments))
    assert (result.is_error, result.error_kind, called) == (True, "wrong_arguments", [])
    assert f"- $.{wrong}" in result.content
    assert ArgumentSchema(made.schema["function"]["parameters"]).mismatches(arguments) != []


@given(signature=signatures(), data=st.data())
def test_no_arguments_raise(signature: Signature, data: Any) -> None:
    names = st.sampled_from([*signature.kinds, "other"])
    arguments = data.draw(st.dictionaries(names, JSON, max_size=4))
    result = asyncio.run(tool(signature.function).call(arguments))
    assert result.error_kind in (None, "wrong_arguments") and result.is_error == (result.error_kind is not None)
