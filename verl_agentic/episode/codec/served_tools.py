"""The form in which model servers pass the tools of a request to a chat template.

Many templates print a tool as JSON, so that keys of null and the order of keys are part of the prompt.

Read in vLLM 0.24.0 (`entrypoints/openai/chat_completion/protocol.py`, `engine/protocol.py`) and SGLang 0.5.23
(`srt/entrypoints/openai/protocol.py`, `serving_chat.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

ToolForm = Literal["given", "vllm", "sglang"]
_BEFORE, _BEHIND = 4, 16
"""Tokens that are shown around a difference."""
_KEYS = ("description", "name", "parameters", "strict", "defer_loading")
_VLLM_ORDER = ("name", "description", "parameters", "strict", "defer_loading")
_OPTIONAL = ("strict", "defer_loading")
"""Keys that both servers leave out where they are null."""


def served_tool(schema: Mapping[str, Any], form: ToolForm) -> Mapping[str, Any]:
    """Returns the schema of a tool as a server passes it to the chat template; `given` leaves it unchanged."""
    function, defers = schema.get("function"), schema.get("defer_loading")
    if form == "given" or not isinstance(function, Mapping):
        return schema
    values = {key: function.get(key) for key in _KEYS}
    if values["defer_loading"] is None:
        values["defer_loading"] = defers
    present_keys = [key for key in _KEYS if values[key] is not None or key not in _OPTIONAL]
    if form == "sglang":  # keys as given, then the missing ones; others are dropped
        order = [
            *(key for key in function if key in present_keys),
            *(key for key in present_keys if key not in function),
        ]
        return {"type": "function", "function": {key: values[key] for key in order}, "defer_loading": defers}
    ordered = {key: values[key] for key in _VLLM_ORDER if key in present_keys}
    others = {key: value for key, value in function.items() if key not in _KEYS}
    served: dict[str, Any] = {"type": "function", "function": {**ordered, **others}}
    if defers is not None:
        served["defer_loading"] = defers
    return {**served, **{key: value for key, value in schema.items() if key not in (*served, "defer_loading")}}


def find_difference(
    own_ids: Sequence[int], served: Sequence[int], *, decode: Callable[[list[int]], str]
) -> tuple[int, str, str] | None:
    """Returns the first token at which two prompts differ, and the texts there; None if they are equal."""
    if list(own_ids) == list(served):
        return None
    pairs = enumerate(zip(own_ids, served, strict=False))
    index = next((place for place, pair in pairs if pair[0] != pair[1]), min(len(own_ids), len(served)))
    begin, end = max(0, index - _BEFORE), index + _BEHIND
    return index, decode(list(own_ids[begin:end])), decode(list(served[begin:end]))
