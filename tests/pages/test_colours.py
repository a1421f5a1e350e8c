"""The shared colours: text has a contrast of 4.5 or more with what lies behind it, and lines of charts one of 3."""

from __future__ import annotations

import re

import pytest

from verl_agentic.web.pages.page import COLOURS, read

_PAIRS = re.compile(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)")
_VALUES = {name: {"light": light, "dark": dark} for name, light, dark in _PAIRS.findall(read(COLOURS))}
_SURFACES = ("bg", "card")
_TEXTS = [
    *((text, surface) for text in ("text", "soft", "accent", "bad", "odd", "good") for surface in _SURFACES),
    *((name, f"{name}-soft") for name in ("accent", "bad", "odd", "good")),
    *(("text", f"{name}-soft") for name in ("accent", "bad", "odd", "good")),
    ("on-accent", "accent"),
]
_LINES = [(name, surface) for name in _VALUES if name.startswith("series-") for surface in _SURFACES]


def contrast(one: str, other: str) -> float:
    """WCAG 2.1, relative luminance."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_can_be_told_from_what_lies_behind_them(scheme: str) -> None:
    def faint(pairs: list[tuple[str, str]], needed: float) -> list[tuple[str, str]]:
        return [(a, b) for a, b in pairs if contrast(_VALUES[a][scheme], _VALUES[b][scheme]) < needed]

    assert len(_LINES) == 8 and faint(_TEXTS, 4.5) == [] and faint(_LINES, 3.0) == []
