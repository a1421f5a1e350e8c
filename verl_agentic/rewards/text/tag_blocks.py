"""What stands between tags in a text, and in which order the tags come; linear time on any input."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def blocks(text: str, tag: str) -> list[str]:
    """Returns what stands in each `<tag>...</tag>`, in order; a block ends at the first closing tag behind it."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    found: list[str] = []
    end = 0
    while (start := text.find(opening, end)) >= 0:
        stop = text.find(closing, start + len(opening))
        if stop < 0:
            break  # none closes behind here, so no later block closes either
        found.append(text[start + len(opening) : stop])
        end = stop + len(closing)
    return found


def last_block(texts: Sequence[str], tag: str) -> str | None:
    """Returns what stands in the last complete block of the last text that has one, without white space around it."""
    for text in reversed(texts):
        if found := blocks(text, tag):
            return found[-1].strip()
    return None


def marks(text: str, tags: Iterable[str]) -> list[str]:
    """Returns the tags of a text in order, without their brackets: `think`, `/think`, ..."""
    return re.findall(f"<(/?(?:{'|'.join(map(re.escape, tags))}))>", text)


def are_flat(tags: Sequence[str]) -> bool:
    """Tells whether tags, as `marks` gives them, open and close in turn, none inside another."""
    return len(tags) % 2 == 0 and all(
        not tags[i].startswith("/") and tags[i + 1] == f"/{tags[i]}" for i in range(0, len(tags), 2)
    )
