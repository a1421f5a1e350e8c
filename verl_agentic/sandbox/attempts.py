"""Pauses between attempts of a request to a service."""

from __future__ import annotations

import random

MAX_PAUSE_S = 8.0
_FIRST_PAUSE_S = 0.4


def pause_s(attempt: int, *, asked_s: float | None = None, max_asked_s: float = MAX_PAUSE_S) -> float:
    """Returns the pause after an attempt, in seconds: random and growing, and at least what the service asks for.

    Args:
        attempt: number of the attempt, from 1.
        asked_s: the service's `Retry-After`, in seconds.
        max_asked_s: longest pause that the service may ask for.
    """
    own_s = min(MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
    return max(own_s, min(max_asked_s, asked_s or 0.0))
