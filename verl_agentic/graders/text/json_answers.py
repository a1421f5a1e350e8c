"""Reads JSON from the answer of a language model, which may have thoughts before it and backslashes that it has not
escaped.

Models copy LaTeX, paths and regular expressions into JSON as they are: `"6 \\cdot 7"`, `"C:\\dir\\"`. What such a text
says must not decide whether the rest of the object can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from verl_agentic.base.text.reasoning import END_OF_REASONING, strip_thoughts

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_BACKSLASHES = re.compile(r"""(\\+)(?=("|\Z|[/bfnrt]|u[0-9a-fA-F]{4})?)""")
_BETWEEN_STRINGS = re.compile(r"(?:[\s,:\[\]{}]|true|false|null|-?\d[\d.eE+-]*)*")
_BEHIND_STRING = re.compile(r"\s*(?:[,:\]}]|\Z)")


def load_json_answer(
    text: str,
    *,
    with_prose: bool = False,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """Returns the JSON value of an answer.

    JSON without faults has the value that `json.loads` gives. Control characters may stand in strings.

    Args:
        text: the answer: JSON, in one code fence or bare, with or without thoughts before it.
        with_prose: allow other text around the fence or the object.
        object_pairs_hook: see `json.loads`.
        parse_constant: see `json.loads`.

    Raises:
        ValueError: it is not JSON, or a hook refuses it. RecursionError: it is nested too deeply.
    """
    error: ValueError | None = None
    for candidate in _iter_candidates(text.strip(), with_prose=with_prose):
        for repair in (str, escape_backslashes):
            try:
                return json.loads(
                    repair(candidate), strict=False, object_pairs_hook=object_pairs_hook, parse_constant=parse_constant
                )
            except ValueError as cause:
                error = cause
    raise error or AssertionError("there is always a candidate")


def _iter_candidates(text: str, *, with_prose: bool) -> Iterator[str]:
    """Yields parts of an answer that may be its JSON; its thoughts and its strings may name tags of reasoning."""
    yield _without_fence(text)
    ends = [match.end() for match in END_OF_REASONING.finditer(text)]
    for end in dict.fromkeys([*ends[:1], *ends[-1:]]):
        yield _without_fence(text[end:].strip())
    if with_prose:
        answer = strip_thoughts(text)
        if fenced := _FENCED.search(answer):
            yield fenced[1]
        begin = min((place for mark in "{[" if (place := answer.find(mark)) >= 0), default=0)
        yield answer[begin : max(map(answer.rfind, "}]")) + 1]


def _without_fence(text: str) -> str:
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") :].rstrip("`")
    return text


def escape_backslashes(text: str) -> str:
    """Returns JSON whose stray backslashes are doubled: those in strings that begin no escape.

    A quote behind a backslash belongs to its string, unless only the structure of JSON stands between it and the next
    string. So a string may end with a backslash, as paths do.
    """
    parts, position = [], 0
    while (opening := text.find('"', position)) >= 0 and (closing := _find_closing(text, opening + 1)) >= 0:
        body = _BACKSLASHES.sub(_double_stray, text[opening + 1 : closing])
        parts += [text[position : opening + 1], body, '"']
        position = closing + 1
    return "".join([*parts, text[position:]])


def _find_closing(text: str, begin: int) -> int:
    """Returns the offset of the quote that closes a string; -1 if there is none."""
    quote = text.find('"', begin)
    while quote >= 0 and quote > begin and text[quote - 1] == "\\" and not _closes_string(text, quote):
        quote = text.find('"', quote + 1)
    return quote


def _closes_string(text: str, quote: int) -> bool:
    """Returns whether a quote behind a backslash closes its string: the next quote can then open the next one."""
    match = _BETWEEN_STRINGS.match(text, quote + 1)
    assert match is not None
    end = match.end()
    return end == len(text) or (text[end] == '"' and _BEHIND_STRING.match(text, end + 1) is None)


def _double_stray(match: re.Match[str]) -> str:
    """Returns a run of backslashes, with one more if the last of them begins no escape or would end the string."""
    follower, is_odd = match[2], len(match[1]) % 2 == 1
    is_fine = is_odd if follower == '"' else bool(follower) or not is_odd
    return match[1] if is_fine else match[1] + "\\"
