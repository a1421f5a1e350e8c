"""ToolRL's rewards: fit of the calls with the expected ones, and form of the turns.

Paper: https://arxiv.org/abs/2504.13958 (section 3.3; public code: qiancheng0/ToolRL)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import DataError

LOWEST, HIGHEST = -3.0, 3.0
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"

NamedCall = tuple[str, Mapping[str, Any]]
"""Name of a tool and its arguments."""


@dataclass(frozen=True, kw_only=True)
class ExpectedTurn:
    """The expected turn."""

    calls: tuple[NamedCall, ...]
    has_response: bool
    """Whether it has a response to the user."""

    @classmethod
    def of(cls, ground_truth: Any) -> ExpectedTurn:
        """Reads the expected turn of a row.

        Args:
            ground_truth: calls, `[{"name": ..., "arguments": {...}}]` (or `parameters`), also as JSON; or the turn
                itself, as ToolRL's data have it. A row without calls expects a response.

        Raises:
            DataError: it is something else.
        """
        try:
            if isinstance(ground_truth, str) and ground_truth.lstrip().startswith("<"):
                lines = ground_truth.partition(_OPEN)[2].partition(_CLOSE)[0]
                calls = [json.loads(line) for line in lines.strip().splitlines() if line.strip()]
                return cls(calls=_to_named_calls(calls), has_response="<response>" in ground_truth)
            calls = json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth
            named = _to_named_calls(calls.tolist() if hasattr(calls, "tolist") else calls)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise DataError(
                'ground_truth must be expected calls, [{"name": ..., "arguments": {...}}], or a turn in the tags of '
                f"ToolRL, got {str(ground_truth)[:200]!r}; fix the row"
            ) from cause
        return cls(calls=named, has_response=not named)


def call_score(expected: Sequence[NamedCall], called: Sequence[NamedCall]) -> float:
    """Returns the fit of calls with the expected ones, from -3 to 3, in any order.

    6 * S / S_max - 3 with S_max = 1 + calls + parameters expected. S sums the Jaccard index of the names (multisets)
    and, for each expected call, the best fit among the free calls of that name: the Jaccard index of parameter names,
    plus 1 per equal value.
    """
    score = _compute_jaccard((name for name, _ in expected), (name for name, _ in called))
    best = 1.0 + len(expected) + sum(len(arguments) for _, arguments in expected)
    free = dict(enumerate(called))
    for name, arguments in expected:
        fits = {
            i: _score_fit(arguments, called_arguments) for i, (other, called_arguments) in free.items() if other == name
        }
        if fits:
            best_index = max(fits, key=lambda i: fits[i])
            score += fits[best_index]
            # A call without any fit stays free, as in the original.
            if fits[best_index]:
                del free[best_index]
    return (HIGHEST - LOWEST) * score / best + LOWEST


def has_toolrl_form(text: str, *, with_calls: bool, with_response: bool) -> bool:
    """Returns whether a turn is one thought and then only the required parts, each on its own line.

    Args:
        text: the policy's text, without the special token at its end.
        with_calls: `<tool_call>`, calls on lines of their own, `</tool_call>`.
        with_response: `<response>...</response>`, last.
    """
    tags = ["think", *(["tool_call"] if with_calls else []), *(["response"] if with_response else [])]
    if any(text.count(f"<{tag}>") != 1 or text.count(f"</{tag}>") != 1 for tag in tags):
        return False
    position = 0
    for index, tag in enumerate(tags):
        line = "\n" if tag == "tool_call" else ""
        opening, closing = f"{chr(10) if index else ''}<{tag}>{line}", f"{line}</{tag}>"
        if not text.startswith(opening, position):
            return False
        end = text.find(closing, position + len(opening))
        if end < 0:
            return False
        position = end + len(closing)
    return position == len(text)


def _to_named_calls(calls: Any) -> tuple[NamedCall, ...]:
    named = []
    for call in calls:
        arguments = call["arguments"] if call.get("arguments") is not None else call["parameters"]
        if not isinstance(call["name"], str) or not isinstance(arguments, Mapping):
            raise TypeError("a call without a name or an object of arguments")
        named.append((call["name"], dict(arguments)))
    return tuple(named)


def _score_fit(expected: Mapping[str, Any], arguments: Mapping[str, Any]) -> float:
    equal = sum(key in arguments and arguments[key] == value for key, value in expected.items())
    return _compute_jaccard(expected, arguments) + equal


def _compute_jaccard(items: Iterable[str], others: Iterable[str]) -> float:
    """Returns the Jaccard index of two multisets; 1 if both are empty."""
    first, second = Counter(iter(items)), Counter(iter(others))  # of a mapping, a counter would take the values
    together = (first | second).total()
    return (first & second).total() / together if together else 1.0
