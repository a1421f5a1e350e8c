"""A row that holds what the policy did not do is found, with span and reason; a right one is silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verl_agentic.base.types import Segment, SegmentKind
from verl_agentic.log.row_audit import Breach, audit_row, describe_shift, find_foreign_text, measure_shifts

MASK = [1, 1, 0, 0, 1, 1]
REWARDS = [0, 0.5, 0, 0, 0, 1.0]
SEGMENTS = [
    Segment(0, 2, SegmentKind.MODEL, 0),
    Segment(2, 4, SegmentKind.TOOL, 0),
    Segment(4, 6, SegmentKind.MODEL, 1),
]
NAMES = ("rollout_log_probs", "old_log_probs")


def audit(*, mask: list[int] = MASK, rewards: list[float] = REWARDS, **log_probs: list[float]) -> list[Breach]:
    columns = {name: np.array(log_probs.get(name, [-1.0] * len(mask))) for name in NAMES}
    return audit_row(np.array(mask, dtype=bool), np.array(rewards), SEGMENTS, columns)


def test_a_right_row_is_silent() -> None:
    assert audit() == []
    assert audit(rollout_log_probs=[-1, -1, float("nan"), 0.5, -1, 0.001]) == [], "tokens with mask 0 are not judged"
    assert audit(mask=[0] * 6, rewards=[1.0] * 6) == [], "void rows are not trained on, whatever they hold"


@pytest.mark.parametrize(
    ("changes", "name", "part"),
    [
        ({"mask": [1, 1, 0, 1, 1, 1]}, "observation_trained", "tokens 3 to 4 of the response (tool, turn 0)"),
        ({"mask": [1, 1, 1, 1, 1, 1]}, "observation_trained", "tokens 2 to 4 of the response (tool, turn 0)"),
        ({"mask": [1, 1, 0, 0, 1, 0], "rewards": [0.0] * 6}, "last_token_untrained", "the last 1 of 6 tokens"),
        ({"rewards": [0, 0, 0.25, 0, 0, 1.0]}, "reward_off_mask", "0.25 begins on token 2"),
        ({"rollout_log_probs": [-1, float("nan"), 0, 0, -1, -1]}, "log_probs_misaligned", "rollout_log_probs of token"),
        ({"old_log_probs": [-1, -1, 0, 0, -1, 0.5]}, "log_probs_misaligned", "old_log_probs of token 5 is 0.5"),
        ({"old_log_probs": [float("-inf"), -1, 0, 0, -1, -1]}, "log_probs_misaligned", "old_log_probs of token 0"),
    ],
)
def test_a_breach_is_named_with_its_place(changes: dict[str, Any], name: str, part: str) -> None:
    (breach,) = audit(**changes)
    assert breach.name == name and part in breach.message


@pytest.mark.parametrize(("offset", "direction"), [(1, "later"), (-1, "earlier")])
def test_log_probs_that_are_shifted_by_a_token_are_found(offset: int, direction: str) -> None:
    generator = np.random.default_rng(1)
    rollout_BT = -generator.random((4, 50)) * 4
    mask = np.ones(50, dtype=bool)

    def judge(trainer_BT: np.ndarray, rows_BT: np.ndarray = rollout_BT) -> str:
        sums = sum(measure_shifts(mask, row, trainer) for row, trainer in zip(rows_BT, trainer_BT, strict=True))
        return describe_shift(np.asarray(sums), min_tokens=64, min_gap=0.05, max_ratio=0.5)

    shifted_BT = np.roll(rollout_BT, offset, axis=1)
    assert f"the token {direction} are taken" in judge(shifted_BT)
    assert judge(rollout_BT - 0.02) == ""
    assert judge(rollout_BT + generator.normal(size=(4, 50))) == "", (
        "a mismatch that no shift explains is another alarm's"
    )
    holed_BT = rollout_BT.copy()
    holed_BT[0, 10] = float("nan")
    assert judge(rollout_BT, holed_BT) == "", "a value that is not finite says nothing of the others"
    assert judge(shifted_BT[:1], rollout_BT[:1]) == "", "few tokens say nothing"


def test_a_row_of_few_tokens_has_no_shift() -> None:
    for length in range(4):
        column = np.zeros(length)
        assert measure_shifts(np.ones(length, dtype=bool), column, column)[0] == max(length - 2, 0)


def test_each_run_of_trained_tokens_is_compared_with_the_text_of_its_turn() -> None:
    words = ["the", "answer", "is", "not", "here"]
    row: dict[str, Any] = {"mask": [1, 1, 0, 1, 1], "turn_ids": [0, 0, 0, 1, 1]}

    def find(ids: list[int], texts: dict[int, str]) -> str:
        return find_foreign_text(ids, **row, texts=texts, decode=lambda span: " ".join(words[i] for i in span))

    texts = {0: "the answer", 1: "is not"}
    assert find([0, 1, 4, 2, 3], texts) == ""
    assert find([0, 1, 4, 3, 2], texts).startswith("tokens 3 to 5 of turn 1")
    assert find([0, 1, 4, 3, 2], {0: "the answer"}) == "", "turns without a text are not compared"
    assert find([0, 1, 4, 3, -1], texts) == "", "withheld tokens are not compared"
