"""The loss and the data of the PEAR trainer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jagged import log_probs_of, nested
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import sft_loss

from verl_agentic.base.errors import DataError
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.methods.losses.pear import PearSettings
from verl_agentic.verl.extensions.offline.pear_trainer import BehaviourDataset, weighted_loss

# Log-probs are at the position before their token: -1 and -2 of the first row, -3 of the second.
ROWS = [[-9.0, -1.0, -9.0, -2.0, -9.0], [-3.0, -9.0]]
BATCH = {
    "loss_mask": nested([0, 0, 1, 0, 1], [0, 1]),
    "turn_ids": nested([0, 0, 0, 0, 1], [0, 0]),
    "behaviour_log_probs": nested([0.0, 0.0, -1.5, 0.0, -2.5], [0.0, -3.0]),
    "batch_num_tokens": 6,
    "dp_size": 2,
}
OPEN = PearSettings(gamma=1.0, min_ratio=1e-9, max_ratio=1e9, max_weight=1e9)
ROW = {"prompt_ids": [1, 2], "response_ids": [3, 4], "response_mask": [1, 0], "turn_ids": [0, 0],
       "rollout_log_probs": [-0.5, 0.0]}  # fmt: skip


def test_the_loss_is_the_weighted_mean_over_the_tokens_of_all_parts() -> None:
    leaf, log_probs = log_probs_of(*ROWS)
    loss, metrics = weighted_loss({"log_probs": log_probs}, BATCH, settings=OPEN)
    weight = math.exp(-2.0 + 2.5)  # of the one token behind the first
    assert loss.item() == pytest.approx((weight * 1.0 + 2.0 + 3.0) / 6 * 2)
    assert metrics == {"train/pear_weight": pytest.approx((weight + 2) / 6)}
    loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == pytest.approx([0.0, -weight / 3, 0.0, -1 / 3, 0.0, -1 / 3, 0.0])


def test_with_ratios_of_1_it_is_the_loss_of_sft() -> None:
    _, log_probs = log_probs_of(*ROWS)
    settings = PearSettings(gamma=1.0, min_ratio=1.0, max_ratio=1.0)
    loss, _ = weighted_loss({"log_probs": log_probs}, BATCH, settings=settings)
    data: Any = TensorDict({"loss_mask": BATCH["loss_mask"]}, batch_size=2)
    tu.assign_non_tensor(data, pad_mode="no_padding", dp_size=2, batch_num_tokens=6)
    config: Any = None
    expected, _ = sft_loss(config, {"log_probs": log_probs}, data)
    assert loss.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_row_has_its_columns_behind_the_prompt(tmp_path: Path, name: str) -> None:
    write_json_lines([ROW, ROW], tmp_path / "rows.jsonl")
    pq.write_table(pa.Table.from_pylist([ROW, ROW]), tmp_path / "rows.parquet")
    (row,) = BehaviourDataset([str(tmp_path / name)], vocab_size=5, max_length=4, max_rows=1)
    assert {name: column.tolist() for name, column in row.items()} == {
        "input_ids": [1, 2, 3, 4], "loss_mask": [0, 0, 1, 0], "position_ids": [0, 1, 2, 3], "turn_ids": [0, 0, 0, 0],
        "behaviour_log_probs": [0.0, 0.0, -0.5, 0.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_log_probs": []}, "'rollout_log_probs': 0"),
        ({"rollout_log_probs": [float("nan"), 0.0]}, "not finite"),
        ({"response_mask": [0, 0]}, "needs prompt_ids"),
        ({"response_ids": [3, 9]}, "ids up to 9"),
        ({"prompt_ids": [1, 1, 1]}, "has 5 tokens"),
    ],
)
def test_a_row_that_cannot_be_weighted_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_json_lines([ROW, {**ROW, **changes}], tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match=rf"rows.jsonl:2 .*{message}"):
        BehaviourDataset([str(tmp_path / "rows.jsonl")], vocab_size=5, max_length=4)
