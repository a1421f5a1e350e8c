"""Gradients that reach what they must not reach are found, whatever the masks say."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.checks.dryrun.events import sampled_flags
from verl_agentic.checks.dryrun.gradient_map import Proof, prove

# Prompt 1 2; turns 10 11 and 12; the observation 20 21 between them.
_COMPLETIONS = [{"prompt": [1, 2], "ids": [10, 11]}, {"prompt": [1, 2, 10, 11, 20, 21], "ids": [12]}]
_TARGETS = {"as_is": -0.5, "not_written": -0.5, "written": 1.0}


def _row(**changes: Any) -> dict[str, Any]:
    row = {
        "ids": [1, 2, 10, 11, 20, 21, 12],
        "num_prompt": 2,
        "mask": [1, 1, 0, 0, 1],
        "advantages": [0.5, 0.5, 0.0, 0.0, 0.5],
        "segments": [[0, 2, "model", 0], [2, 4, "tool", 0], [4, 5, "model", 1]],
        "gradients": {"log_probs": [0.1, 0.1, 0.0, 0.0, 0.1]},
        "elsewhere": {"log_probs": 0.0},
    }
    return {**row, **changes}


def _prove(*rows: dict[str, Any], targets: dict[str, float] | None = None, every_token: bool = True) -> Proof:
    update = {"rows": list(rows), "targets": targets or _TARGETS}
    return prove([update], _COMPLETIONS, every_token=every_token)


def test_a_row_whose_gradient_lies_on_its_turns_alone_proves_it() -> None:
    proof = _prove(_row())
    assert not proof.wrong and not proof.not_shown
    assert (proof.due, proof.due_with_gradient, proof.num_observed) == (3, 3, 2)
    assert (proof.kinds["tool"].tokens, proof.kinds["tool"].with_gradient) == (2, 0)
    assert (proof.kinds["model"].tokens, proof.kinds["model"].masked_in) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"mask": [1, 1, 1, 1, 1], "gradients": {"log_probs": [0.1] * 5}},
            "2 tokens of kind 'tool' that the policy did not write have a gradient",
        ),
        ({"mask": [1, 1, 1, 0, 1]}, "1 tokens of kind 'tool' that the policy did not write have mask 1"),
        # A mask and segments that agree with each other, and are both wrong.
        (
            {"mask": [1] * 5, "segments": [[0, 5, "model", 0]], "gradients": {"log_probs": [0.1] * 5}},
            "2 tokens of kind 'other' that the policy did not write have a gradient",
        ),
        ({"gradients": {"entropy": [0.0, 0.0, 0.0, 1e-9, 0.0]}}, "1 tokens with mask 0 have a gradient"),
        ({"elsewhere": {"log_probs": 1e-9}}, "1 rows have a gradient at their prompt"),
        (
            {"gradients": {"log_probs": [float("nan"), 0.1, 0.0, 0.0, 0.1]}},
            "1 tokens have a gradient that is not finite",
        ),
        (
            {"gradients": {"log_probs": [0.1, 0.0, 0.0, 0.0, 0.1]}},
            "1 sampled tokens with an advantage have no gradient",
        ),
        ({"gradients": {"log_probs": [0.0] * 5}}, "none of 3 sampled tokens of rows with an advantage has a gradient"),
    ],
)
def test_a_gradient_in_the_wrong_place_is_told(changes: dict[str, Any], fault: str) -> None:
    assert fault in _prove(_row(**changes)).wrong


def test_a_loss_that_may_leave_tokens_out_is_only_held_to_what_it_must_not_do() -> None:
    assert not _prove(_row(gradients={"log_probs": [0.1, 0.0, 0.0, 0.0, 0.0]}), every_token=False).wrong


def test_clipping_may_leave_tokens_out_after_the_first_update() -> None:
    second = {"rows": [_row(gradients={"log_probs": [0.1, 0.0, 0.0, 0.0, 0.0]})], "targets": None}
    assert not prove([{"rows": [_row()], "targets": None}, second], _COMPLETIONS, every_token=True).wrong


def test_targets_that_the_policy_did_not_write_must_not_change_the_loss() -> None:
    (wrong,) = _prove(_row(), targets={**_TARGETS, "not_written": -0.4}).wrong
    assert "change the loss, -0.5 to -0.4" in wrong


def test_targets_that_it_did_write_must_change_it() -> None:
    (wrong,) = _prove(_row(), targets={**_TARGETS, "written": -0.5}).wrong
    assert "leave the loss at -0.5" in wrong


def test_what_did_not_occur_is_not_shown() -> None:
    row = _row(ids=[1, 2, 10, 11], mask=[1, 1], advantages=[0.0, 0.0], segments=[], gradients={"log_probs": [0.0, 0.0]})
    proof = _prove(row)
    assert not proof.wrong and len(proof.not_shown) == 2


def test_a_token_is_the_policy_s_where_a_turn_continued_the_very_row() -> None:
    assert sampled_flags([1, 2, 10, 11, 20, 21, 12], _COMPLETIONS) == [False, False, True, True, False, False, True]
    # Asked for with another prompt, or answered otherwise from some token on.
    assert sampled_flags([1, 3, 10, 11], _COMPLETIONS) == [False] * 4
    assert sampled_flags([1, 2, 10, 99], _COMPLETIONS) == [False, False, True, False]
    # The row ends inside a turn: a budget has cut it.
    assert sampled_flags([1, 2, 10], _COMPLETIONS) == [False, False, True]
