"""Calls of sandboxes get threads, and run without new ones while the process ends."""

from __future__ import annotations

import threading

import pytest

from verl_agentic.sandbox import lasting_threads
from verl_agentic.sandbox.lasting_threads import LastingThreads, start_no_more_threads


def test_at_the_end_calls_run_in_the_thread_of_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting_threads, "_is_ending", False)
    with LastingThreads(2) as threads:
        assert threads.submit(threading.get_ident).result() != threading.get_ident()
        start_no_more_threads()
        assert threads.submit(threading.get_ident).result() == threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            threads.submit(lambda: 1 / 0).result()
