"""Logs and swallows exceptions in monitoring code."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

logger = logging.getLogger(__name__)
_told: set[str] = set()


@contextlib.contextmanager
def log_and_continue(what: str) -> Iterator[None]:
    """Swallows exceptions of the block `what`, and logs the first one of this process."""
    try:
        yield
    except Exception:
        if what not in _told:
            _told.add(what)
            logger.exception("%s cannot be told (said once); the run goes on", what)
