"""Progress that was attributed to turns, as advantages."""

from __future__ import annotations

import pytest
from turn_batches import per_turn, turn_batch

from verl_agentic.graders.turns.turn_progress import fused, renormalised, squared_error
from verl_agentic.methods.advantages.spa import spa

CONTRIBUTIONS = [0.1, 0.35, 0.05, 0.4]
GROUNDED = [True, True, False, True]


def test_the_fused_rewards_are_those_of_the_paper() -> None:
    assert fused(CONTRIBUTIONS, GROUNDED, alpha=1.0, beta=0.5) == pytest.approx([0.6, 0.85, 0.05, 0.9])
    assert squared_error(CONTRIBUTIONS, 1.0) == pytest.approx(0.01)
    assert renormalised(CONTRIBUTIONS, 1.0) == pytest.approx([0.111111, 0.388889, 0.055556, 0.444444], abs=1e-6)


def test_a_turn_is_credited_with_its_own_progress_and_what_follows() -> None:
    batch = turn_batch([fused(CONTRIBUTIONS, GROUNDED)])
    (values,) = per_turn(spa(batch, norm="none").advantages_BT, batch)
    assert values == pytest.approx([2.4, 1.8, 0.95, 0.9])


def test_discounting_leaves_a_turn_its_own_progress() -> None:
    batch = turn_batch([fused(CONTRIBUTIONS, GROUNDED)])
    (values,) = per_turn(spa(batch, norm="none", gamma=0.0).advantages_BT, batch)
    assert values == pytest.approx([0.6, 0.85, 0.05, 0.9])


def test_siblings_at_the_same_turn_are_taken_off() -> None:
    batch = turn_batch([fused(CONTRIBUTIONS, GROUNDED), [0.5, 0.5]])
    first, second = per_turn(spa(batch).advantages_BT, batch)
    # 2.4 - 1, 1.8 - .5; the sibling has no third turn, so the second one's goes on.
    assert first == pytest.approx([1.4, 1.3, 1.3, 1.3])
    assert second == pytest.approx([-1.4, -1.3])
