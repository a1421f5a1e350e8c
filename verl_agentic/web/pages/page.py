"""Renders a page as one file without scripts or requests: result, picture, numbers, then its own blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import DictLoader, Environment
from markupsafe import Markup

COLOURS = "colours.css"


class Tile(NamedTuple):
    """A number with its label."""

    title: str
    value: str
    note: str = ""
    style: str = ""
    """`main` for the result, `cost` for its cost."""


def write_page(
    path: Path, template: Path, *, title: str, result: str, picture: Markup, tiles: Sequence[Tile] = (), **values: Any
) -> None:
    """Writes a page. Every value is escaped, except for charts.

    Args:
        path: of the HTML file; its folder is made.
        template: extends `page.html`; its blocks are `about` (one line below the result), `body` and `style`.
        title: of the window.
        result: one line.
        picture: a figure of `web.pages.charts`; may be empty.
        tiles: shown below the picture.
        values: for the template's blocks.
    """
    loader = DictLoader({"page.html": read("page.html")})
    page = Environment(loader=loader, autoescape=True).from_string(template.read_text(encoding="utf-8"))
    style = Markup(read(COLOURS) + read("page.css"))
    parts = {"style": style, "title": title, "result": result, "picture": picture, "tiles": tiles}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.render(**parts, **values), encoding="utf-8", errors="replace")


@cache
def read(name: str) -> str:
    """Returns a file of the shared design."""
    return (files("verl_agentic.web.pages") / name).read_text(encoding="utf-8")
