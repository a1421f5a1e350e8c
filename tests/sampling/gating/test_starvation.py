"""Dynamic sampling ends, and hands out as many prompts as it needs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import AgenticError, StarvationError
from verl_agentic.sampling.gate import Decision, Group
from verl_agentic.sampling.gating.starvation import StarvationGuard, prompts_due

GROUP = Group(uid="g", sessions=())


def guard_after(reasons: list[str], *, batch_size: int = 1, **options: Any) -> StarvationGuard:
    guard = StarvationGuard(**options)
    guard.begin_batch(batch_size)
    for reason in reasons:
        guard.record(Decision(group=GROUP, gate="zero_variance" if reason else "", reason=reason))
    return guard


def check(guard: StarvationGuard, **changed: int) -> None:
    guard.check(**{"num_useful": 0, "batch_size": 1, "num_inflight": 0, **changed})


def test_the_error_tells_the_rate_by_reason_and_what_helps_against_the_greatest() -> None:
    guard = guard_after([""] + ["all_0"] * 60 + ["all_1"] * 30 + ["void"] * 9, window=100)
    with pytest.raises(StarvationError) as caught:
        check(guard, batch_size=8, num_useful=1)
    for part in ("1 of 8 groups", "99% of the last 100", "(all_0 60%, all_1 30%, void 9%)", "the tasks are too hard"):
        assert part in str(caught.value)
    assert isinstance(caught.value, AgenticError) and isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [("all_1", "too easy"), ("too_hard", "too hard"), ("void", "`error` in the trajectories"), ("x", "loosen")],
)
def test_advice_is_by_reason(reason: str, advice: str) -> None:
    with pytest.raises(StarvationError, match=advice):
        check(guard_after([reason] * 10, window=10))


def test_it_is_quiet_at_the_rate_while_the_window_fills_and_with_a_full_batch() -> None:
    check(guard_after(["all_0"] * 95 + [""] * 5, window=100, max_drop_rate=0.95))
    check(guard_after(["all_0"] * 99, window=100))
    check(guard_after(["all_0"] * 100, window=100), num_useful=1)
    check(guard_after(["all_0"] * 100, window=100, max_drop_rate=1))


def test_only_the_last_groups_count() -> None:
    with pytest.raises(StarvationError):
        check(guard_after([""] * 50 + ["all_0"] * 100, window=100))
    check(guard_after(["all_0"] * 100 + [""] * 10, window=100))


def test_a_window_holds_two_batches_because_short_episodes_end_first() -> None:
    check(guard_after(["all_1"] * 100, window=10, batch_size=64), batch_size=64)
    with pytest.raises(StarvationError, match="of the last 128"):
        check(guard_after(["all_1"] * 128, window=10, batch_size=64), batch_size=64)


def test_the_window_survives_from_batch_to_batch() -> None:
    guard = guard_after(["all_1"] * 9, window=10)
    guard.end_batch()
    guard.begin_batch(1)
    guard.record(Decision(group=GROUP, gate="zero_variance", reason="all_1"))
    with pytest.raises(StarvationError):
        check(guard)


def test_a_spent_budget_ends_it_once_nothing_is_played_any_more() -> None:
    guard = guard_after(["all_0", "", "all_0"], max_generated_groups=3)
    assert guard.budget_left == 0
    check(guard, num_inflight=1, batch_size=2)
    check(guard, num_useful=2, batch_size=2)
    with pytest.raises(StarvationError, match="max_generated_groups"):
        check(guard, num_useful=1, batch_size=2)
    guard.end_batch()
    assert guard.budget_left == 3 and StarvationGuard().budget_left is None


def test_what_is_kept_is_expected_from_what_was_kept() -> None:
    assert StarvationGuard().keep_rate == 0.5
    assert guard_after(["", "", "all_0", ""]).keep_rate == 4 / 6


# Refill.


def test_missing_groups_are_handed_out_by_how_many_are_kept() -> None:
    # 2 are missing, none is open, every second is kept: 4.
    assert prompts_due(batch_size=8, num_useful=6, num_open=0, keep_rate=0.5, allowed=99) == 4
    # The 4 that are open will do.
    assert prompts_due(batch_size=8, num_useful=6, num_open=4, keep_rate=0.5, allowed=99) == 0
    assert prompts_due(batch_size=8, num_useful=6, num_open=3, keep_rate=0.5, allowed=99) == 1
    assert prompts_due(batch_size=8, num_useful=6, num_open=0, keep_rate=0.5, allowed=3) == 3
    assert prompts_due(batch_size=8, num_useful=8, num_open=0, keep_rate=0.5, allowed=99) == 0
    assert prompts_due(batch_size=8, num_useful=6, num_open=0, keep_rate=0.5, allowed=-2) == 0


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 50), st.floats(0.01, 0.99), st.integers(0, 50))
def test_it_never_starves_and_never_exceeds(batch: int, useful: int, opened: int, rate: float, allowed: int) -> None:
    due = prompts_due(batch_size=batch, num_useful=useful, num_open=opened, keep_rate=rate, allowed=allowed)
    assert 0 <= due <= allowed
    if useful < batch and not opened and allowed:
        assert due >= 1
    if useful >= batch:
        assert due == 0
