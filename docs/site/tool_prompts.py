"""The second table of docs/model_families.md: what chat templates print of tools, calls and results."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from verl_agentic.base.tools.plain_schema import simplify_tool
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.codec.message_forms import to_template

Render = Callable[..., str]
COLUMNS = ("family", "left out of schemas", "text beside a call", "result of a tool", "thoughts before a call")
_PLACE = {"type": "object", "properties": {"name": {"type": "string", "description": "spelling"}}, "required": ["name"]}
BOOK: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Books a trip.",
        "parameters": {
            "type": "object",
            "properties": {
                "color": {"$ref": "#/$defs/Color", "description": "paint"},
                "seats": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "mark": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "place": {"$ref": "#/$defs/Place"},
                "stops": {"type": "array", "items": {"type": "integer"}},
                "inner": {"type": "object", "properties": {"shade": {"$ref": "#/$defs/Color"}}},
                "other": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"$ref": "#/$defs/Place"}]},
            },
            "required": ["color"],
            "$defs": {"Color": {"type": "string", "enum": ["crimson", "azure"]}, "Place": _PLACE},
        },
    },
}
"""A tool as pydantic describes it."""
_PROPERTIES = ("function", "parameters", "properties")
PARTS: dict[str, tuple[tuple[str, ...], Any]] = {
    "types": (("seats", "type"), "boolean"),
    "enums": (("color", "enum"), ["crimson", "indigo"]),
    "descriptions": (("color", "description"), "ink"),
    "`nullable`": (("seats", "nullable"), False),
    "lists of types": (("mark", "type"), ["integer", "boolean"]),
    "types of items": (("stops", "items", "type"), "boolean"),
    "nested names": (("place", "properties"), {"title": {"type": "string", "description": "spelling"}}),
    "nested types": (("place", "properties", "name", "type"), "boolean"),
    "nested enums": (("inner", "properties", "shade", "enum"), ["crimson", "indigo"]),
    "other unions": (("other", "anyOf"), [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}}]),
}
"""Part of a schema -> its place below the arguments, and another value. A template that prints both alike drops it."""
_QUESTION = Message("user", "Well?")
_RESULT = 'say "six"\nor 6'


def write_table(families: Iterable[tuple[str, Any]]) -> list[str]:
    """Returns the lines of the table, a row for each family (name, tokenizer) whose template prints tools."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS)]
    for name, tokenizer in families:
        render = functools.partial(tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True)
        if find_dropped_parts(render) != ", ".join(PARTS):
            rows.append([name, *_measure(render)])
    return [f"| {' | '.join(row)} |" for row in rows]


def _measure(render: Render) -> list[str]:
    said = Message("assistant", "Let me look.", tool_calls=(ToolCall("book", {"color": "azure"}, "call00001"),))
    thought = Message("assistant", "", tool_calls=said.tool_calls, reasoning="Hm, hm.")
    result = Message("tool", _RESULT, name="book", call_id="call00001")
    return [
        find_dropped_parts(render),
        _find_text(_render_history(render, said, result)),
        _find_result(_render_history(render, said, result)),
        _find_thoughts(_render_history(render, thought, result)),
    ]


def find_dropped_parts(render: Render) -> str:
    """Returns the parts of a schema that a prompt does not show, or why no prompt shows any."""
    question, base = [_QUESTION.to_dict()], simplify_tool(BOOK)
    try:
        shown = render(question, tools=[base])
        dropped = [name for name, change in PARTS.items() if render(question, tools=[_changed(base, *change)]) == shown]
    except Exception as cause:
        return f"refused: {cause}"
    return ", ".join(dropped) or "-"


def _changed(schema: Any, place: Sequence[str], value: Any) -> Any:
    schema = copy.deepcopy(schema)
    *path, last = (*_PROPERTIES, *place)
    part = schema
    for key in path:
        part = part[key]
    part[last] = value
    return schema


def _render_history(render: Render, turn: Message, result: Message) -> str:
    """Returns a conversation with a call; empty if the template refuses it in both forms of arguments."""
    for as_text in (False, True):
        chat = [to_template(message) for message in (_QUESTION, turn, result)]
        function = chat[1]["tool_calls"][0]["function"]
        function["arguments"] = json.dumps(function["arguments"]) if as_text else function["arguments"]
        try:
            return render(chat, tools=[simplify_tool(BOOK)]).partition(_QUESTION.content)[2]
        except Exception:
            continue
    return ""


def _find_text(history: str) -> str:
    if not history:
        return "refused"
    if "Let me look." not in history:
        return "dropped"
    if "azure" not in history:
        return "kept, the call dropped"
    return "kept" if history.index("Let me look.") < history.index("azure") else "behind the call"


def _find_result(history: str) -> str:
    if not history:
        return "refused"
    if _RESULT in history:
        return "as it is"
    return "as JSON text" if json.dumps(_RESULT)[1:-1] in history else "changed"


def _find_thoughts(history: str) -> str:
    return "refused" if not history else "kept" if "Hm, hm." in history else "dropped"
