"""Equal messages about many places as one line each."""

from __future__ import annotations

from collections.abc import Iterable


def group_lines(messages: Iterable[tuple[str, str]], *, separator: str = ": ") -> list[str]:
    """Returns a line for each different text, in the order of their first places.

    A text of one place is `place: text`. A text of several places is `17 x text; first in place`.

    Args:
        messages: place and text; the place may be empty.
        separator: between place and text.
    """
    places_by_text: dict[str, list[str]] = {}
    for place, text in messages:
        places_by_text.setdefault(text, []).append(place)
    return [_make_line(text, places, separator) for text, places in places_by_text.items()]


def _make_line(text: str, places: list[str], separator: str) -> str:
    names = list(filter(None, places))
    if len(places) == 1:
        return separator.join([*names, text])
    return f"{len(places)} x {text}" + (f"; first in {names[0]}" if names else "")
