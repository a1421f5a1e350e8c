"""What only watches a run must not end it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

logger = logging.getLogger(__name__)
_told: set[str] = set()


@contextlib.contextmanager
def log_and_continue(what: str) -> Iterator[None]:
    """Keeps an exception in the block from ending the run; it is logged, the first time in this process.

    Args:
        what: cannot be told then; names the block.
    """
    try:
        yield
    except Exception:
        if what not in _told:
            _told.add(what)
            logger.exception("%s cannot be told (said once); the run goes on", what)
