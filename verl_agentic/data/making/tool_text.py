"""Calls and outputs of tools in texts that must have none."""

from __future__ import annotations

import re

_TOOL_TEXT = re.compile(
    r"</?(?:tool_call|tool_response|tool_result|search|information|python|code|execute|observation|interpreter|result"
    r"|output|function|parameter|invoke)\b"
    r"|^\s*(?:observation|action input)\s*:|\"(?:arguments|parameters)\"\s*:|<\||\[TOOL_CALLS\]",
    re.IGNORECASE | re.MULTILINE,
)


def find_tool_text(text: str) -> str | None:
    """Returns the beginning of the first call, or output of a tool, in a text; None if there is none."""
    match = _TOOL_TEXT.search(text)
    return match[0].strip() if match else None
