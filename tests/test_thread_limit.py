"""A thread that has used its CPU time is interrupted, whatever it catches, and only inside of the block."""

from __future__ import annotations

import contextlib
import time

import pytest

from verl_agentic.base.deadlines import limit_thread
from verl_agentic.base.errors import EnvError


def count_until(cpu_s: float, *, is_stubborn: bool = False) -> int:
    began_s, count = time.thread_time(), 0
    while time.thread_time() - began_s < cpu_s:
        with contextlib.suppress(BaseException if is_stubborn and count < 50 else Exception):
            count += 1
            if is_stubborn:
                sum(range(10**6))
    return count


def test_a_search_without_an_end_is_interrupted() -> None:
    began_s = time.thread_time()
    with pytest.raises(EnvError, match=r"0\.2 s"), limit_thread(0.2, what="the search"):
        count_until(30.0)
    assert 0.2 <= time.thread_time() - began_s < 10.0


@pytest.mark.slow
def test_a_limit_is_repeated_where_foreign_code_catches_everything() -> None:
    with pytest.raises(EnvError), limit_thread(0.05, what="the search"):
        count_until(30.0, is_stubborn=True)


@pytest.mark.slow
def test_waiting_is_not_counted_and_nothing_is_raised_after_the_block() -> None:
    with limit_thread(0.2, what="a wait"):
        time.sleep(0.6)
    for _ in range(5):
        with limit_thread(0.1, what="a short block"):
            count_until(0.02)
    assert count_until(0.4) > 0, "the limit of an earlier block"


def test_an_error_of_the_block_passes() -> None:
    with pytest.raises(KeyError), limit_thread(5.0, what="a block"):
        raise KeyError("its own")
