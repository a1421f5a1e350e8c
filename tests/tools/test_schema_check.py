"""Arguments against JSON schemas: what is told of those that do not fit, and where defaults come in."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.base.tools.schema_check import ArgumentSchema, argument_schema, explain

POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "step": {"type": "integer", "default": 1}},
    "required": ["x"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
        "unit": {"enum": ["c", "f"], "default": "c"},
        "at": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "string"}, {"type": "null"}], "default": None},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"point": POINT},
}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"city": "Oslo"}, []),
        ({"city": "Oslo", "days": 2.0, "at": "here"}, []),
        ({"city": "Oslo", "at": {"x": 1}}, []),
        ({}, ["$.city: expected string, got nothing"]),
        ({"city": 7}, ["$.city: expected string, got 7"]),
        ({"city": ""}, ['$.city: expected minLength 1, got ""']),
        ({"city": "Oslo", "days": True}, ["$.days: expected integer, got true"]),
        ({"city": "Oslo", "days": 9}, ["$.days: expected at most 7, got 9"]),
        ({"city": "Oslo", "unit": "k"}, ['$.unit: expected one of "c", "f", got "k"']),
        (
            {"city": "Oslo", "town": "x"},
            ['$.town: expected no such name (known: city, days, unit, at, points), got "x"'],
        ),
        ({"city": "Oslo", "at": 3}, ["$.at: expected object or string or null, got 3"]),
        ({"city": "Oslo", "at": {"x": "1"}}, ['$.at.x: expected number, got "1"']),
        ({"city": "Oslo", "points": [{"x": 1}, {"step": 1}]}, ["$.points[1].x: expected number, got nothing"]),
        ({"city": "Oslo", "points": [{"x": float("nan")}]}, ["$.points[0].x: expected a finite number, got NaN"]),
        ({"days": 0, "unit": 1}, ["$.city: .*", "$.days: expected at least 1, got 0", "$.unit: .*"]),
        ([], ["$: expected object, got []"]),
    ],
)
def test_every_mismatch_is_told_with_its_path_what_was_expected_and_what_came(arguments: Any, told: list[str]) -> None:
    found = [str(mismatch) for mismatch in argument_schema(SCHEMA).mismatches(arguments)]
    assert len(found) == len(told)
    for text, expected in zip(found, told, strict=True):
        assert text == expected or (expected.endswith(".*") and text.startswith(expected[:-2]))


def test_of_several_branches_the_one_of_the_right_type_is_explained() -> None:
    schema = {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}, {"type": "null"}]}
    # Two branches are objects: which one was meant cannot be said.
    assert [str(m) for m in ArgumentSchema({"properties": {"v": schema}}).mismatches({"v": {}})] == [
        "$.v: expected a value or null, got {}"
    ]


def test_defaults_fill_objects_lists_and_the_branch_that_fits() -> None:
    given = {"city": "Oslo", "points": [{"x": 1}, {"x": 2, "step": 5}], "at": {"x": 0}}
    filled = argument_schema(SCHEMA).with_defaults(given)
    assert filled == {
        "city": "Oslo",
        "days": 1,
        "unit": "c",
        "points": [{"x": 1, "step": 1}, {"x": 2, "step": 5}],
        "at": {"x": 0, "step": 1},
    }
    assert given["at"] == {"x": 0} and argument_schema(SCHEMA).with_defaults({"city": "Oslo"})["at"] is None


def test_a_default_is_copied_and_not_shared() -> None:
    schema = argument_schema({"properties": {"tags": {"type": "array", "default": []}}})
    schema.with_defaults({})["tags"].append("x")
    assert schema.with_defaults({}) == {"tags": []}


def test_an_equal_schema_is_compiled_once() -> None:
    assert argument_schema({"type": "object", "title": "once"}) is argument_schema({"type": "object", "title": "once"})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "dict"}, "'dict'"),
        ({"properties": {"a": {"type": "float"}}}, "properties.a.type"),
        ({"properties": {"a": {"$ref": "https://example.org/a.json"}}}, "may only refer to itself"),
        ({"$ref": "#/$defs/nothing"}, "may only refer to itself"),
    ],
)
def test_what_is_no_schema_of_its_own_is_refused(
    schema: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: pytest.fail("a schema must not reach the network"))
    with pytest.raises(DataError, match=says):
        argument_schema(schema)


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = argument_schema({"properties": {"$ref": {"type": "string"}, "default": {"type": "integer"}}})
    assert [m.path for m in schema.mismatches({"$ref": "x", "default": "y"})] == ["$.default"]


def test_long_values_and_long_lists_of_mismatches_are_cut_with_a_note() -> None:
    schema = argument_schema({"type": "object", "additionalProperties": {"type": "integer"}})
    text = explain("f", schema.mismatches({f"k{i}": "x" * 500 for i in range(20)}))
    lines = text.split("\n")
    assert lines[0] == "Error: the arguments of 'f' do not fit its schema" and lines[-1] == "- and 12 more"
    assert len(lines) == 10 and max(map(len, lines)) < 130 and '..."' not in lines[1]


def test_a_schema_that_is_changed_in_place_is_compiled_anew() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert argument_schema(schema) is argument_schema(schema)
    schema["properties"]["x"]["type"] = "string"
    assert not list(argument_schema(schema).mismatches({"x": "a"}))


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_boolean_is_no_number_in_a_schema_of_scalars(kind: str) -> None:
    schema = argument_schema({"type": "object", "properties": {"n": {"type": kind}}})
    assert not schema.mismatches({"n": 1})
    assert [str(mismatch) for mismatch in schema.mismatches({"n": True})] == [f"$.n: expected {kind}, got true"]
