"""Schemas in prompts have neither references nor null branches, and mean what they meant."""

from __future__ import annotations

import enum
import itertools
import json
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest
from pydantic import BaseModel

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.tools.function_tool import tool
from verl_agentic.base.tools.plain_schema import list_schemas, simplify_parameters, simplify_tool
from verl_agentic.base.tools.schema_check import ArgumentSchema
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message
from verl_agentic.bridges.harness.env import AgentTool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    name: str
    color: Optional[Color] = None  # noqa: UP045


class Tree(BaseModel):
    value: int
    children: list[Tree] = []
    parent: Tree | None = None


@tool
def plan(
    color: Color,
    place: Place | None,
    seats: int | None = None,
    mark: int | str = 1,
    mode: Literal["a", "b"] | Literal["c"] | None = None,
    unit: Literal["km"] = "km",
    places: list[Place] = [],  # noqa: B006
    shades: dict[str, Color | None] | None = None,
    tree: Tree | None = None,
    other: Place | list[int] | None = None,
) -> str:
    """Plans."""
    return ""


def every_part(schema: Any) -> list[Any]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return [schema, *itertools.chain.from_iterable(map(every_part, inner))]


def test_types_enums_and_fields_of_hints_stand_in_place() -> None:
    place = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "color": {"title": "Color", "enum": ["red", "blue"], "type": "string", "default": None, "nullable": True},
        },
        "required": ["name"],
        "title": "Place",
        "additionalProperties": False,
    }
    leaf = {"type": "object", "title": "Tree"}
    tree = {"value": {"type": "integer"}, "children": {"type": "array", "items": leaf, "default": []}}
    assert plan.schema["function"]["parameters"]["properties"] == {
        "color": {"title": "Color", "enum": ["red", "blue"], "type": "string"},
        "place": {**place, "nullable": True},
        "seats": {"type": "integer", "default": None, "nullable": True},
        "mark": {"type": ["integer", "string"], "default": 1},
        "mode": {"type": "string", "enum": ["a", "b", "c"], "default": None, "nullable": True},
        "unit": {"enum": ["km"], "type": "string", "default": "km"},
        "places": {"type": "array", "items": place, "default": []},
        "shades": {
            "type": "object",
            "additionalProperties": {"title": "Color", "enum": ["red", "blue"], "type": "string", "nullable": True},
            "default": None,
            "nullable": True,
        },
        "tree": {
            "type": "object",
            "title": "Tree",
            "properties": {**tree, "parent": {**leaf, "default": None, "nullable": True}},
            "required": ["value"],
            "default": None,
            "nullable": True,
        },
        "other": {
            "anyOf": [place, {"type": "array", "items": {"type": "integer"}}, {"type": "null"}],
            "default": None,
        },
    }


PARTS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "integer", "minimum": 3},
    {"enum": ["a", "b"], "type": "string"},
    {"const": "a", "type": "string"},
    {"const": 7},
    {"const": None},
    {"enum": ["a", "x", None]},
    {"enum": [1, 2.5, True]},
    {"enum": ["a", {"at": 1}]},
    {"type": ["string", "null"], "enum": ["a"]},
    {"$ref": "#/$defs/pl%61ce"},
    {"$ref": "#/$defs/place", "description": "where"},
    {"type": "array", "items": {"$ref": "#/$defs/place"}},
    {"type": ["string", "null"]},
    {"type": ["integer", "string", "null"], "enum": [1, "x", None]},
    {"type": "string", "nullable": True},
    {"enum": ["a", "b"], "nullable": True},
    {"$ref": "#/$defs/place", "nullable": True},
    {"allOf": [{"$ref": "#/$defs/place"}], "nullable": True},
    {"allOf": [{"type": "string"}, {"enum": ["a", "c"]}]},
    {"not": {"type": "string"}},
    {},
]
NULL = {"type": "null"}
PAIRS = [*((NULL, part) for part in PARTS), *itertools.combinations(PARTS[:7], 2)]
UNIONS = [
    {keyword: list(pair), "description": "x", "default": None} for keyword in ("anyOf", "oneOf") for pair in PAIRS
]
VALUES = [None, "a", "b", "x", "", 1, 3, 7, 2.5, True, [], [{"at": 1}], {}, {"at": 1}, {"at": None, "next": {"at": 2}}]
PLACE = {
    "type": "object",
    "properties": {
        "at": {"type": ["integer", "null"]},
        "next": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
    },
    "required": ["at"],
}


@pytest.mark.parametrize("part", [*PARTS, *UNIONS], ids=json.dumps)
def test_a_simple_schema_allows_what_the_schema_allows(part: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"v": part}, "$defs": {"place": PLACE}}
    simple = simplify_parameters(schema)
    assert simplify_parameters(simple) == simple
    assert not any(isinstance(one, dict) and one.keys() & {"$ref", "$defs", "const"} for one in every_part(simple))
    # Branches of `oneOf` may overlap. Joined ones then allow the value, as `anyOf` does.
    loose = {"anyOf" if key == "oneOf" else key: value for key, value in part.items()}
    strict, lax = (ArgumentSchema({**schema, "properties": {"v": one}}) for one in (part, loose))
    after = ArgumentSchema(simple)
    for value in VALUES:
        assert strict.mismatches({"v": value}) or not after.mismatches({"v": value}), value
        assert after.mismatches({"v": value}) or not lax.mismatches({"v": value}), value


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
def test_nullable_adds_null_and_nothing_else(part: dict[str, Any]) -> None:
    defs = {"$defs": {"place": PLACE}}
    plain = ArgumentSchema({"properties": {"v": {**part, "nullable": False}}, **defs})
    nullable = ArgumentSchema({"properties": {"v": {**part, "nullable": True}}, **defs})
    assert not nullable.mismatches({"v": None})
    for value in VALUES[1:]:
        assert nullable.mismatches({"v": value}) == [] or plain.mismatches({"v": value})
        assert plain.mismatches({"v": value}) == [] or nullable.mismatches({"v": value})


def test_enums_have_types_and_nullable_in_the_place_of_null() -> None:
    parts = {"a": {"enum": ["x", "y", None]}, "b": {"anyOf": [{"const": "x"}, {"const": 2}, {"type": "null"}]}}
    assert simplify_parameters({"properties": parts})["properties"] == {
        "a": {"type": "string", "enum": ["x", "y"], "nullable": True},
        "b": {"type": ["string", "integer"], "enum": ["x", 2], "nullable": True},
    }


def test_references_into_lists_and_to_escaped_names_are_resolved() -> None:
    defs = {"a/b c": {"anyOf": [{"type": "boolean"}, {"enum": ["x"], "type": "string"}]}}
    schema = {"properties": {"v": {"$ref": "#/$defs/a~1b%20c/anyOf/1"}}, "$defs": defs}
    assert simplify_parameters(schema) == {"properties": {"v": {"enum": ["x"], "type": "string"}}}
    assert [ArgumentSchema(schema).mismatches({"v": value}) == [] for value in ("x", True)] == [True, False]
    for missing in ("2", "-1", "x"):
        with pytest.raises(DataError, match="refer"):
            ArgumentSchema({**schema, "properties": {"v": {"$ref": f"#/$defs/a~1b c/anyOf/{missing}"}}})


WIDE = {f"n{n}": {"properties": {key: {"$ref": f"#/$defs/n{n + 1}"} for key in "abcd"}} for n in range(9)}
WIDE["n9"] = {"type": "string"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "https://example.org/a.json"}}},
        {"properties": {"a": {"$ref": "#/$defs/b", "minimum": 3}}, "$defs": {"b": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/$defs/n0"}}, "$defs": WIDE},
    ],
    ids=["missing", "elsewhere", "constrained", "too large"],
)
def test_what_cannot_be_written_in_place_stays_as_it_is(parameters: dict[str, Any]) -> None:
    assert simplify_parameters(parameters) == parameters


def test_the_keyword_names_of_arguments_are_no_keywords() -> None:
    names = ("$ref", "$defs", "const", "anyOf", "nullable", "type")
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in names}}
    assert simplify_parameters(schema) == schema


def test_the_prompt_of_every_environment_shows_simple_schemas() -> None:
    class Foreign:
        name = "f"
        schema = {  # noqa: RUF012
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"a": {"anyOf": [{"type": "null"}, {"const": 1}]}}}},
        }

        async def call(self, arguments: Any) -> Any: ...

    env = ToolEnv(EnvRow(prompt=(Message("user", "?"),)), [Foreign(), plan])
    foreign, own = list_schemas(env.tools)
    assert foreign["function"]["parameters"] == {
        "properties": {"a": {"enum": [1], "type": "integer", "nullable": True}}
    }
    assert own is plan.schema and simplify_tool(Foreign.schema) is foreign


def test_agents_of_their_own_see_the_schemas_that_they_send() -> None:
    schema = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"const": 1}}}}}
    assert list_schemas([AgentTool(schema)]) == [schema] != [simplify_tool(schema)]
