"""The token record: what is appended, taken back, and where rewards may lie."""

from __future__ import annotations

import pytest

from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import SegmentKind


def example() -> Trajectory:
    trajectory = Trajectory(prompt_ids=[1, 2])
    trajectory.append_sampled([10, 11], [-0.1, -0.2], turn=0)
    trajectory.append_context([20, 21, 22], turn=0)
    trajectory.append_sampled([12], [-0.3], turn=1)
    trajectory.append_context([23], turn=1, kind=SegmentKind.USER)
    return trajectory


def test_columns_stay_aligned() -> None:
    t = example()
    t.check()
    assert t.token_ids == [1, 2, 10, 11, 20, 21, 22, 12, 23]
    assert t.response_mask == [1, 1, 0, 0, 0, 1, 0]
    assert t.log_probs == [-0.1, -0.2, 0.0, 0.0, 0.0, -0.3, 0.0]
    assert t.turn_ids == [0, 0, 0, 0, 0, 1, 1]
    assert t.num_model_tokens == 3


def test_a_separator_that_the_template_takes_back_leaves_every_column() -> None:
    t = example()
    t.drop_tail(2)
    t.check()
    assert t.response_ids == [10, 11, 20, 21, 22] and t.log_probs[-1] == 0.0


def test_trailing_observations_are_trimmed_to_a_trainable_end() -> None:
    t = example()
    t.trim_context()
    assert t.response_ids == [10, 11, 20, 21, 22, 12]


def test_a_void_row_is_never_empty_and_never_trained_on() -> None:
    empty, played = Trajectory(prompt_ids=[1]), example()
    empty.void(filler_id=9)
    played.void(filler_id=9)
    assert (empty.response_ids, empty.response_mask) == ([9], [0])
    assert played.response_mask == [0] * 7 and played.token_rewards(outcome=1.0, turn_rewards={}) == [0.0] * 7


def test_segments_name_the_author_of_every_observation() -> None:
    kinds = [s.kind for s in example().segments()]
    assert kinds == [SegmentKind.MODEL, SegmentKind.TOOL, SegmentKind.MODEL, SegmentKind.USER]


def test_a_reward_of_a_turn_without_sampled_tokens_goes_to_the_turn_before() -> None:
    t = example()
    # Turn 1's only sampled token is at 5; turn 7 has none; the outcome shares the last sampled token.
    assert t.token_rewards(outcome=1.0, turn_rewards={0: 0.5, 7: 0.25}) == [0, 0.5, 0, 0, 0, 1.25, 0]


def test_rewards_of_two_turns_on_one_token_add_up() -> None:
    # Turn 7 has no sampled token: its reward joins that of turn 1, and the outcome, at 5.
    assert example().token_rewards(outcome=1.0, turn_rewards={1: 0.5, 7: 0.25}) == [0, 0, 0, 0, 0, 1.75, 0]


def test_one_turn_without_log_probs_is_remembered() -> None:
    t = example()
    assert t.has_log_probs
    t.append_sampled([13], None, turn=2)
    assert not t.has_log_probs and len(t.log_probs) == len(t.response_ids)


def test_misaligned_log_probs_and_falling_turns_are_refused() -> None:
    t = example()
    with pytest.raises(AssertionError):
        t.append_sampled([1, 2], [0.0], turn=2)
    with pytest.raises(AssertionError, match="turn 0 after turn 1"):
        t.append_context([1], turn=0)


def test_what_a_protocol_keeps_out_of_the_loss_was_sampled_all_the_same() -> None:
    t = Trajectory(prompt_ids=[1])
    t.append_sampled([10, 11, 12, 13], [-0.1, -0.2, -0.3, -0.4], turn=0, untrained=[(1, 3)])
    t.check()
    assert t.response_mask == [1, 0, 0, 1] and t.log_probs == [-0.1, 0.0, 0.0, -0.4]
    assert [(s.start, s.end, s.kind) for s in t.segments()] == [(0, 4, SegmentKind.MODEL)]
    assert t.num_model_tokens == 2
    t.append_sampled([14, 15], [-0.5, -0.6], turn=1, untrained=[(1, 2)])
    t.trim_context()
    assert t.response_ids == [10, 11, 12, 13, 14]
