"""The loss and the data of the trainer on suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jagged import log_probs_of, nested

from verl_agentic.base.errors import DataError
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.methods.losses.suggestions import SuggestionSettings
from verl_agentic.verl.extensions.offline.suggestion_trainer import SuggestionDataset, log_loss

# Log-probs are at the position before their token: -1 and -2 of the first row, -3 of the second.
ROWS = [[-9.0, -1.0, -2.0, -9.0], [-3.0, -9.0]]
BATCH = {
    "loss_mask": nested([0, 0, 1, 1], [0, 1]),
    "behaviour_log_probs": nested([0.0, 0.0, -1.0, -2.0], [0.0, -1.0]),
    "reward": nested([0.75], [-0.25]),
    "batch_num_tokens": 3,
    "global_batch_size": 2,
    "dp_size": 2,
}
LINE = {"prompt_ids": [1, 2], "response_ids": [3, 4], "rollout_log_probs": [-0.5, -0.1], "verdict": "accepted"}


def test_the_loss_is_a_share_of_the_mean_over_tokens_and_old_suggestions_have_none() -> None:
    leaf, log_probs = log_probs_of(*ROWS)
    loss, metrics = log_loss({"log_probs": log_probs}, BATCH, settings=SuggestionSettings())
    loss.backward()
    assert leaf.grad is not None
    # The second author found its token e^2 times as likely.
    assert leaf.grad.tolist() == pytest.approx([0.0, -0.75 / 3 * 2, -0.75 / 3 * 2, 0.0, 0.0, 0.0])
    assert metrics == {"train/reward": 0.25, "train/used": 0.5}


def test_a_line_of_the_log_is_a_row_with_its_reward(tmp_path: Path) -> None:
    write_json_lines([LINE, {**LINE, "verdict": "rejected"}], tmp_path / "log.jsonl")
    rows = SuggestionDataset([str(tmp_path / "log.jsonl")], threshold=0.4, vocab_size=5, max_length=4)
    assert [row["reward"].item() for row in (rows[0], rows[1])] == pytest.approx([0.6, -0.4])
    assert rows[0]["loss_mask"].tolist() == [0, 0, 1, 1]
    assert rows[0]["behaviour_log_probs"].tolist() == pytest.approx([0.0, 0.0, -0.5, -0.1])


@pytest.mark.parametrize(
    ("changes", "message"), [({"verdict": "liked"}, "'liked'"), ({"rollout_log_probs": [-0.5]}, "rollout_log_probs")]
)
def test_a_line_that_cannot_be_learnt_from_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_json_lines([LINE, {**LINE, **changes}], tmp_path / "log.jsonl")
    with pytest.raises(DataError, match=rf"log.jsonl:2 .*{message}"):
        SuggestionDataset([str(tmp_path / "log.jsonl")], threshold=0.25, vocab_size=5, max_length=4)
