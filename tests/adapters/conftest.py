"""Fixtures of the tests of adapters."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Training rows in a stand-in of TransferQueue, in the place of the real one."""
    # Tests of what is imported when collect this file, too.
    import queues
    from stored_rows import StoredRows

    queue = StoredRows()
    queues.install(queue, monkeypatch)
    return queue
