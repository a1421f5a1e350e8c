"""Writes docs/papers.md from the docstrings that name a paper, and from the table of names.

Run `python docs/site/papers_page.py`. The sources are parsed and not imported.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from verl_agentic.catalogue.names import NamedPlace, find_place, read_table
from verl_agentic.catalogue.paper_methods import KEYS, OTHERS, REGISTRIES, Method, read_methods

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
_INTRO = """# Methods and papers

For everyone who wants to know which paper a method comes from, what this package does, where it differs, and how to
turn it on. `python docs/site/papers_page.py` generates this page from docstrings, and from the table of names.

```bash
verl-agentic recipes agentless      # any name below: where the thing is, and what differs from the paper
```

"""
_NAMES_HEADER = "| names | where | largest deviation that no entry below has |"


def page() -> str:
    """Returns the text of the page.

    Raises:
        ValueError: a config key is given for a method that is not there.
    """
    sections = defaultdict(list)
    for method in read_methods():
        sections[method.heading].append(method)
    if gone := KEYS.keys() - {method.name for method in sections[OTHERS]}:
        raise ValueError(f"config keys need methods with a paper, got {sorted(gone)}; fix KEYS of paper_methods.py")
    headings = dict.fromkeys([*(heading for heading, _ in REGISTRIES.values()), OTHERS])
    parts = (f"## {heading}\n\n" + "\n".join(map(_format_method, sections[heading])) for heading in headings)
    return re.sub(r" +\n", "\n", "\n".join((f"{_INTRO}{_format_names()}", *parts)))


def _format_names() -> str:
    """Returns the index: one table for each group of the table of names."""
    lines = ["## Names", ""]
    for heading, rows in read_table().items():
        lines += [f"**{heading}**", "", _NAMES_HEADER, "|---|---|---|"]
        for names, row in rows.items():
            places = ", ".join(_link_place(find_place(address)) for address in row["at"])
            lines.append(f"| {names} | {places} | {row.get('differs', '')} |")
        lines.append("")
    return "\n".join(lines)


def _link_place(place: NamedPlace) -> str:
    if place.kind == "docs":
        return f"[{place.name}]({place.name})"
    label = place.file if place.kind == "file" else place.name
    text = f"`verl-agentic {label}`" if place.kind == "command" else f"`{label}`"
    return text if place.kind in ("file", "command") else f"{place.kind} {text}"


def _format_method(method: Method) -> str:
    config = f", `{method.config}`" if method.config else ""
    deviations = f"**Deviations:** {method.deviations}\n\n" if method.deviations else ""
    return (
        f"### {method.name.lstrip('_')}\n\n{method.summary}\n\n**Paper:** {method.paper}\n\n{deviations}"
        f"**Where:** `{method.place}`{config}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
