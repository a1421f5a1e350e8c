"""Logs and swallows exceptions in monitoring code."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

logger = logging.getLogger(__name__)
_logged: set[str] = set()


@contextlib.contextmanager
def log_and_continue(activity: str) -> Iterator[None]:
    """Swallows exceptions of a block that does `activity`, and logs the first one of this process."""
    try:
        yield
    except Exception:
        if activity not in _logged:
            _logged.add(activity)
            logger.exception("%s cannot be told (said once); the run goes on", activity)
