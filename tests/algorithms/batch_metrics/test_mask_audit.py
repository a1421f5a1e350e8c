"""A batch that holds what it must not is found, with row, span and reason; a right one is silent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verl_agentic.credit.batch_metrics.mask_audit import audit, incomplete_groups, mask_coverage

# Two rows of 6 and 4 tokens: model, model, tool, tool, model, model | model, tool, model, model.
MASK = [[1, 1, 0, 0, 1, 1], [1, 0, 1, 1, 0, 0]]
OBSERVED = [[0, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]]
REWARDS = [[0, 0.5, 0, 0, 0, 1.0], [0, 0, 0, -1.0, 0, 0]]


def batch(**changes: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    log_probs = -torch.rand(2, 6, generator=generator) * 3
    given = {
        "mask_BT": torch.tensor(MASK),
        "lengths_B": torch.tensor([6, 4]),
        "rewards_BT": torch.tensor(REWARDS),
        "observed_BT": torch.tensor(OBSERVED).bool(),
        "rollout_log_probs_BT": torch.where(torch.tensor(MASK).bool(), log_probs, 0.0),
        "old_log_probs_BT": log_probs + 0.01,
    }
    return given | changes


def with_value(name: str, row: int, token: int, value: float) -> dict[str, Any]:
    changed = batch()[name].clone()
    changed[row, token] = value
    return {name: changed}


def test_a_right_batch_is_silent() -> None:
    assert audit(**batch()) == []
    assert audit(**batch(observed_BT=None, rollout_log_probs_BT=None, old_log_probs_BT=None)) == []
    void = batch(mask_BT=torch.zeros(2, 6), rewards_BT=torch.ones(2, 6))
    assert audit(**void) == [], "void rows are not trained on, whatever stands there"


@pytest.mark.parametrize(
    ("change", "name", "row", "span", "says"),
    [
        (with_value("mask_BT", 0, 3, 1), "observation_trained", 0, (3, 4), "tokens 3 to 4 of the response have mask 1"),
        (with_value("mask_BT", 1, 3, 0), "last_token_untrained", 1, (3, 4), "end the row, and have mask 0"),
        (with_value("rewards_BT", 0, 2, 0.25), "reward_off_mask", 0, (2, 3), "it would be lost"),
        (with_value("rollout_log_probs_BT", 1, 2, float("nan")), "log_probs_misaligned", 1, (2, 3), "of the rollout"),
        (with_value("old_log_probs_BT", 0, 5, 0.5), "log_probs_misaligned", 0, (5, 6), "of the trainer"),
        (with_value("old_log_probs_BT", 0, 0, float("-inf")), "log_probs_misaligned", 0, (0, 1), "of the trainer"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    change: dict[str, Any], name: str, row: int, span: tuple[int, int], says: str
) -> None:
    found = {breach.name: breach for breach in audit(**batch(**change))}
    breach = found.pop(name)
    assert (breach.row, breach.start, breach.end) == (row, *span) and says in breach.message
    # A last token without mask loses its reward, too.
    assert set(found) <= ({"reward_off_mask"} if name == "last_token_untrained" else set())


def test_the_first_span_of_a_row_is_told_whole() -> None:
    mask = torch.ones(1, 8)
    observed = torch.tensor([[0, 1, 1, 1, 0, 1, 1, 0]]).bool()
    (breach,) = audit(mask_BT=mask, lengths_B=torch.tensor([8]), rewards_BT=torch.zeros(1, 8), observed_BT=observed)
    assert (breach.start, breach.end) == (1, 4)


@pytest.mark.parametrize(("by", "whose"), [(1, "later"), (-1, "earlier")])
def test_log_probs_that_are_shifted_by_a_token_are_found(by: int, whose: str) -> None:
    generator = torch.Generator().manual_seed(1)
    rollout = -torch.rand(4, 50, generator=generator) * 4
    given = {
        "mask_BT": torch.ones(4, 50),
        "lengths_B": torch.full((4,), 50),
        "rewards_BT": torch.zeros(4, 50),
        "rollout_log_probs_BT": rollout,
    }
    assert audit(**given, old_log_probs_BT=rollout + 0.02 * torch.randn(4, 50, generator=generator).clamp(max=0)) == []
    (breach,) = audit(**given, old_log_probs_BT=rollout.roll(by, dims=1))
    assert breach.name == "log_probs_misaligned" and f"the token {whose} are taken" in breach.message
    holed = rollout.clone()
    holed[0, 10] = float("nan")
    found = audit(**{**given, "rollout_log_probs_BT": holed}, old_log_probs_BT=rollout)
    assert [(b.row, b.start) for b in found] == [(0, 10)], "what is not finite says nothing of the other rows"
    # A mismatch that no shift explains is another alarm's.
    noise = rollout + torch.randn(4, 50, generator=generator)
    assert audit(**given, old_log_probs_BT=noise.clamp(max=0)) == []


def test_groups_of_which_sessions_are_missing_are_found() -> None:
    uids, sessions = ["a", "a", "a", "b", "b"], [0, 1, 1, 0, 2]
    assert incomplete_groups(uids[:2], sessions[:2], expected={"a": 2}) == []
    found = incomplete_groups(uids, sessions, expected={"a": 3, "b": 3})
    assert [(b.row, b.message) for b in found] == [
        (0, "group a has 2 of 3 sessions; missing: [2]"),
        (3, "group b has 2 of 3 sessions; missing: [1]"),
    ]
    assert incomplete_groups(uids, sessions, expected={"a": 2, "b": 2}) == []


def test_coverage_counts_tokens_and_rows() -> None:
    # 4 of 6 and 0 of 4 tokens.
    mask = torch.tensor([MASK[0], [0] * 6])
    assert mask_coverage(mask, torch.tensor([6, 4])) == {"trained_token_frac": 0.4, "untrained_row_frac": 0.5}
