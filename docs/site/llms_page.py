"""Writes llms.txt, the index of the documentation for language models, from the navigation of the site.

python docs/site/llms_page.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "llms.txt"
_INTRO = """# verl_agentic

> Reinforcement learning for LLM agents, as a plugin for an unmodified verl 0.9.x.

The rules for coding agents are in [AGENTS.md](AGENTS.md). Each line below is a page and what it is for.
"""


def page() -> str:
    """Returns the text of the index: the pages of `docs/` under the headings of the navigation."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    lines = [_INTRO]
    for section in nav:
        ((heading, entry),) = section.items()
        lines += [f"## {heading}\n", *(_describe(path) for path in _iter_paths(entry)), ""]
    return "\n".join(lines)


def _iter_paths(entry: Any) -> Iterator[str]:
    """Yields the pages of an entry of the navigation that lie in `docs/`."""
    if isinstance(entry, str):
        if entry != "index.md" and "/" not in entry:
            yield entry
    else:
        for item in entry:
            for inner in item.values():
                yield from _iter_paths(inner)


def _describe(path: str) -> str:
    """Returns the line of a page: its title, and the first sentence of its first paragraph."""
    title, first = (ROOT / "docs" / path).read_text(encoding="utf-8").split("\n\n")[:2]
    sentence = re.split(r"(?<=\.)\s", "" if first.startswith("#") else first)[0]
    sentence = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(sentence.split()))  # links lead from `docs/`
    return f"- [{title.removeprefix('# ')}](docs/{path})" + (f": {sentence}" if sentence else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
