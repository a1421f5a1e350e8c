"""The files of the page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from verl_agentic.web.pages import page

STYLE = "style.css"
SCRIPTS = (
    "dom.js",
    "source.js",
    "embedded.js",
    "state.js",
    "filters.js",
    "group_list.js",
    "tokens.js",
    "calls.js",
    "patch.js",
    "time_strip.js",
    "trajectory.js",
    "siblings.js",
    "plots.js",
    "curves.js",
    "compare.js",
    "keys.js",
    "main.js",
)
"""In the order in which they must run."""
FILES = (STYLE, *SCRIPTS)


@cache
def read(name: str) -> str:
    """Returns a file; the style begins with the colours that all pages share."""
    text = (files("verl_agentic.observe.viewer") / "page" / name).read_text(encoding="utf-8")
    return page.read(page.COLOURS) + text if name == STYLE else text


def index_html() -> str:
    """Returns the page that asks a server for its files and data."""
    links = [f'<link rel="stylesheet" href="{STYLE}">', *(f'<script src="{name}" defer></script>' for name in SCRIPTS)]
    return read("index.html").replace("<!-- files -->", "\n".join(links))
