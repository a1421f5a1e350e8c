from __future__ import annotations

import torch

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.turn_states import TurnStates
from verl_agentic.credit.credit.turn_tokens import Turns

# Row 0: a turn of two tokens, an observation, a turn in whose midst a token was forced, padding.
# Row 1: goes on from turn 5, skips turn 6, ends at once. Row 2: nothing was sampled.
MASK = torch.tensor([[1, 1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0]])
IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [5, 5, 5, 7, 7, 7, 7], [0, 0, 1, 1, 2, 2, 2]])
NUMBERS = torch.arange(1.0, 22.0).reshape(3, 7)


def states(values: torch.Tensor | None = None) -> TurnStates:
    rewards = NUMBERS if values is None else values
    return TurnStates.of(CreditBatch.of(rewards=rewards, mask=MASK, groups=[0, 0, 0], turn_ids_BT=IDS))


def test_a_row_has_the_turns_in_which_something_was_sampled() -> None:
    turns = Turns.of(IDS, MASK)
    assert turns.exists_BK.tolist() == [[True, True], [True, True], [False, False]]
    assert turns.id_BK.tolist() == [[0, 1], [5, 7], [-1, -1]]
    assert turns.last_BK.tolist() == [[1, 5], [1, 4], [0, 0]]


def test_sums_are_over_the_sampled_tokens_of_a_turn() -> None:
    # Row 0: 1 + 2, 4 + 6 (the forced token is not counted); row 1: 9, 11 + 12.
    assert Turns.of(IDS, MASK).sums(NUMBERS).tolist() == [[3, 10], [9, 23], [0, 0]]


def test_values_are_read_at_the_last_sampled_token_of_a_turn() -> None:
    assert Turns.of(IDS, MASK).at_last(NUMBERS).tolist() == [[2, 6], [9, 12], [0, 0]]
    assert states().at_last(NUMBERS).tolist() == [[2, 6], [9, 12], [0, 0]]


def test_values_are_read_at_the_first_sampled_token_of_a_turn() -> None:
    assert states().at_first(NUMBERS).tolist() == [[1, 4], [9, 11], [0, 0]]


def test_a_turns_value_goes_to_its_sampled_tokens_alone() -> None:
    given = Turns.of(IDS, MASK).to_tokens(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert given.tolist() == [[1, 1, 0, 2, 0, 2, 0], [0, 3, 0, 4, 4, 0, 0], [0] * 7]


def test_first_and_last_tokens_are_marked_and_both_where_a_turn_has_one() -> None:
    assert states().is_first().int().tolist() == [[1, 0, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0, 0], [0] * 7]
    assert states().is_last().int().tolist() == [[0, 1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0, 0], [0] * 7]


def test_what_stands_where_nothing_was_sampled_is_not_read() -> None:
    clean, dirty = states(), states(torch.where(MASK.bool(), NUMBERS, torch.nan))
    garbage = torch.where(MASK.bool(), NUMBERS, torch.nan)
    for read in (TurnStates.at_first, TurnStates.at_last, TurnStates.sums):
        assert torch.equal(read(dirty, garbage), read(clean, NUMBERS))
    assert torch.equal(dirty.rewards_BK, torch.tensor([[3.0, 10.0], [9.0, 23.0], [0.0, 0.0]]))
    ids = torch.where(MASK.bool(), IDS, 999)
    assert torch.equal(Turns.of(ids, MASK).id_BK, Turns.of(IDS, MASK).id_BK)


def test_rows_without_any_sampled_token_have_no_turn() -> None:
    turns = Turns.of(IDS, torch.zeros_like(MASK))
    assert turns.exists_BK.tolist() == [[False]] * 3
    assert turns.sums(NUMBERS).tolist() == [[0.0]] * 3
