"""Texts that models copy into JSON, and how they write them there without escaping backslashes."""

from __future__ import annotations

import json

from hypothesis import strategies as st

_BACKSLASHES = (
    *("\\", "\\\\", r"\n", r"\t", r"\u", r"\ud", r"\u12", r"\ud83d", r"\"", r"\\" + '"', r"\frac", r"\times", r"\neq"),
    *(r"\text", r"\beta", r"\rho", r"\cdot", r"\(", r"\$5", "C:\\dir\\", r"\d+\s*", r"\'", r"\x41", r"\/"),
)
_OTHERS = (
    *('"', "/", ":", ",", "{", "}", "[", "]", '", "', '": ', '", "passed": true, "x": "', "true", "1", " ", "a", "é"),
    *("\n", "\t", "\r", "\x00", "</think>", "<think>", "```", '{"canary": "c1"}'),
)
TEXTS = st.lists(st.sampled_from((*_BACKSLASHES, *_OTHERS)), max_size=12).map("".join) | st.text(max_size=20)
"""LaTeX, paths, regular expressions, quotes, line breaks, and any other text."""


def write_unescaped(text: str, *, is_raw: bool) -> str:
    """Returns a string of JSON by a model that escapes quotes, but no backslashes; nor line breaks if `is_raw`."""
    escaped = text.replace('"', '\\"') if is_raw else json.dumps(text, ensure_ascii=False)[1:-1].replace("\\\\", "\\")
    return f'"{escaped}"'
