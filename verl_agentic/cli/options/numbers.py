"""Types of options that take numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable

MAX_PORT = 65_535


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Returns the type of an option that takes whole numbers from `minimum` to `maximum`."""
    bounds = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum or (maximum is not None and number > maximum):
            raise argparse.ArgumentTypeError(f"must be a whole number {bounds}, got {text!r}")
        return number

    return parse


def positive(text: str) -> float:
    """Returns a number above 0; the type of options in seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number
