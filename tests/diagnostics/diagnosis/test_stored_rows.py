"""The audit of one stored row."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from verl_agentic.observe.diagnosis.stored_rows import breaches

_WORDS = ["call", "<end>", "result", "the", "answer"]


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocab={word: i for i, word in enumerate(_WORDS)}, unk_token="<end>"))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _record(**changes: Any) -> dict[str, Any]:
    """Returns a row of two turns with an observation between them."""
    return {
        "response_ids": [0, 1, 2, 3, 4, 1],
        "response_mask": [1, 1, 0, 1, 1, 1],
        "turn_ids": [0, 0, 0, 1, 1, 1],
        "rollout_log_probs": [-0.1, -0.2, 0.0, -0.3, -0.4, -0.5],
        "token_rewards": [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        "old_log_probs": None,
        "advantages": None,
        "segments": [
            {"start": 0, "end": 2, "kind": "model", "turn": 0},
            {"start": 2, "end": 3, "kind": "tool", "turn": 0},
            {"start": 3, "end": 6, "kind": "model", "turn": 1},
        ],
        "turns": [{"index": 0, "text": "call<end>"}, {"index": 1, "text": "the answer<end>"}],
        **changes,
    }


def test_a_right_row_has_no_breach() -> None:
    assert list(breaches(_record(), _tokenizer())) == []


@pytest.mark.parametrize(
    ("changes", "name", "what"),
    [
        ({"response_mask": [1] * 6}, "observation_trained", "tokens 2 to 3 of the response (tool, turn 0)"),
        ({"response_mask": [1, 1, 0, 0, 0, 0], "token_rewards": [0.0] * 6}, "last_token_untrained", "last 4 of 6"),
        ({"token_rewards": [0.0, 0.0, 0.5, 0.0, 0.0, 0.5]}, "reward_off_mask", "a reward of 0.5 begins on token 2"),
        ({"rollout_log_probs": [-0.1] * 5}, "log_probs_misaligned", "rollout_log_probs has 5"),
        ({"token_rewards": []}, "log_probs_misaligned", "token_rewards has 0"),
        ({"rollout_log_probs": [-0.1, float("nan"), 0, -0.3, -0.4, -0.5]}, "log_probs_misaligned", "token 1 is nan"),
        ({"old_log_probs": [-0.1, -0.1, 0, 0.5, -0.4, -0.5]}, "log_probs_misaligned", "old_log_probs of token 3"),
        (
            {"response_ids": [0, 1, 2, 0, 4, 1]},
            "text_mismatch",
            "tokens 3 to 6 of turn 1 are trained on and decode to 'callanswer",
        ),
    ],
)
def test_a_breach_is_named_with_its_place(changes: dict[str, Any], name: str, what: str) -> None:
    ((found, told),) = breaches(_record(**changes), _tokenizer())

    assert found == name and what in told


def test_a_log_prob_of_nothing_but_zeros_is_missing() -> None:
    length = 12
    record = _record(
        response_ids=[0] * length,
        response_mask=[1] * length,
        turn_ids=[0] * length,
        token_rewards=[0.0] * length,
        rollout_log_probs=[0.0] * length,
        old_log_probs=[-0.7] * length,
        segments=[],
    )

    assert list(breaches(record)) == [("log_probs_misaligned", "rollout_log_probs are 0 on all 12 trained tokens")]


def test_a_sure_policy_has_log_probs_of_zero_without_a_breach() -> None:
    record = _record(rollout_log_probs=[0.0] * 6, old_log_probs=[-0.001] * 6)

    assert list(breaches(record)) == []


def test_a_shift_is_told_from_mismatch() -> None:
    rollout = [-0.1, -2.0, -0.5, -1.5, -0.2, -3.0, -0.7, -1.1, -0.3, -2.2, -0.9, -1.8]
    length = len(rollout)
    row = {"response_ids": [0] * length, "response_mask": [1] * length, "turn_ids": [0] * length, "segments": []}
    plain = _record(**row, token_rewards=[0.0] * length, rollout_log_probs=rollout)

    shifted = list(breaches({**plain, "old_log_probs": [*rollout[1:], -0.4]}))
    noisy = list(breaches({**plain, "old_log_probs": [value - 0.5 for value in rollout]}))

    assert [name for name, _ in shifted] == ["log_probs_misaligned"] and "of the token earlier are taken" in shifted[0][
        1
    ]
    assert noisy == []


def test_what_a_protocol_keeps_out_of_the_loss_is_no_mismatch() -> None:
    record = _record(response_mask=[0, 1, 0, 1, 1, 1])

    assert list(breaches(record, _tokenizer())) == []


def test_a_withheld_secret_is_no_mismatch_and_other_turns_are_compared() -> None:
    turns = [{"index": 0, "text": "[API_KEY]<end>"}, {"index": 1, "text": "the answer<end>"}]

    assert list(breaches(_record(response_ids=[-1, -1, 2, 3, 4, 1], turns=turns), _tokenizer())) == []
    ((found, _),) = breaches(_record(response_ids=[-1, -1, 2, 0, 4, 1], turns=turns), _tokenizer())
    assert found == "text_mismatch"


def test_text_is_not_compared_where_turns_are_not_known() -> None:
    assert list(breaches(_record(turns=[]), _tokenizer())) == []
