"""Comparison of made and expected calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_agentic import DataError
from verl_agentic.base.tools.schema_check import ArgumentSchema

Strings = Literal["exact", "lenient"]
_IGNORED = re.compile(r"[\s,./\-_*^]")
_KEYS = {"name", "arguments", "alternatives", "optional"}


@dataclass(frozen=True, kw_only=True)
class MadeCall:
    """A call that a tool executed."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ExpectedCall:
    """A call that the request needs."""

    name: str
    arguments: Mapping[str, Any]
    alternatives: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Argument -> other accepted values."""
    optional: Sequence[str] = ()
    """Optional arguments."""

    @classmethod
    def from_json(cls, value: Any) -> ExpectedCall:
        """Returns the call of a row's ground truth.

        Raises:
            DataError: it is not an object with `name`, `arguments` and maybe `alternatives` and `optional`.
        """
        is_call = isinstance(value, Mapping) and {"name", "arguments"} <= set(value) <= _KEYS
        if not is_call or not isinstance(value["name"], str) or not isinstance(value["arguments"], Mapping):
            raise DataError(
                f'an expected call must be {{"name": ..., "arguments": {{...}}}}, with "alternatives" and "optional" '
                f"where needed, got {value!r}; mend the row"
            )
        return cls(
            name=value["name"],
            arguments=value["arguments"],
            alternatives=value.get("alternatives") or {},
            optional=tuple(value.get("optional") or ()),
        )

    def is_made_by(self, call: MadeCall, *, schema: ArgumentSchema, strings: Strings) -> bool:
        """Returns whether a call is equivalent, defaults included."""
        if call.name != self.name:
            return False
        values, expected = schema.with_defaults(call.arguments), schema.with_defaults(self.arguments)
        for key in {*values, *expected}:
            if key in self.optional and key not in call.arguments:
                continue
            right = [expected[key]] if key in expected else []
            if key not in values or not any(
                canonical(values[key], strings=strings) == canonical(value, strings=strings)
                for value in (*right, *self.alternatives.get(key, ()))
            ):
                return False
        return True


def same_calls(
    calls: Sequence[MadeCall],
    expected: Sequence[ExpectedCall],
    *,
    schemas: Mapping[str, ArgumentSchema],
    is_ordered: bool,
    strings: Strings = "exact",
) -> bool:
    """Returns whether every expected call was made exactly once, and no other.

    Args:
        calls: those made, in the order of execution.
        expected: what the request needs.
        schemas: by name of the tool; every expected tool must be among them.
        is_ordered: the order counts, too.
        strings: how texts are compared; see `canonical`.
    """
    if len(calls) != len(expected):
        return False
    fits = [
        [w.name in schemas and w.is_made_by(m, schema=schemas[w.name], strings=strings) for w in expected]
        for m in calls
    ]
    if is_ordered:
        return all(row[i] for i, row in enumerate(fits))
    return _has_perfect_matching(fits)


def canonical(value: Any, *, strings: Strings = "exact") -> str:
    """Returns one text for all equivalent JSON values: 1 is 1.0, the order of keys does not count, true is not 1.

    Args:
        value: a JSON value.
        strings: `lenient` ignores case, spaces and `,./-_*^` in texts and takes both kinds of quotes for one, as the
            matching of BFCL does.
    """
    return json.dumps(plain(value, strings=strings), sort_keys=True, ensure_ascii=False)


def plain(value: Any, *, strings: Strings = "exact") -> Any:
    """Returns a JSON value in which whole numbers are integers, and texts are as `canonical` compares them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and strings == "lenient":
        return _IGNORED.sub("", value.lower()).replace("'", '"')
    if isinstance(value, Mapping):
        return {str(key): plain(item, strings=strings) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, strings=strings) for item in value]
    return value


def _has_perfect_matching(fits: Sequence[Sequence[bool]]) -> bool:
    """Returns whether a square matrix `fits` has a perfect matching of rows and columns."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in owner or place(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))
