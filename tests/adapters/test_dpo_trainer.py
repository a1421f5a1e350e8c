"""The loss and the data of the DPO trainer; whole runs are in cpu/test_dpo_training.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from verl_agentic.adapters.dpo_trainer import DpoSettings, PairDataset, pair_loss, row_log_probs
from verl_agentic.data.rows import write_json_lines
from verl_agentic.errors import ConfigError, DataError

PROMPT = [{"role": "user", "content": "Double 21."}]
CALL = {"role": "assistant", "text": "<tool_call>\n{}\n</tool_call><|im_end|>"}
PAIR = {
    "prompt": PROMPT,
    "chosen": [CALL, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "42"}],
    "rejected": [{"role": "assistant", "content": "21"}],
}


def nested(*rows: list[float], **kwargs: Any) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row, **kwargs) for row in rows], layout=torch.jagged)


def log_probs_of(*rows: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns leaf values and the nested tensor that is made of them."""
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    leaf = torch.tensor([value for row in rows for value in row], requires_grad=True)
    return leaf, torch.nested.nested_tensor_from_jagged(leaf, lengths.cumsum(0))


MASK = nested([0, 1, 0, 1], [0, 0, 1], [0, 1], [0, 0, 1])
# A place tells of the token behind it: what counts are places 0 and 2, then 1, then 0, then 1.
ROWS = [[-1.0, -5.0, -2.0, -9.0], [-7.0, -0.5, -9.0], [-4.0, -9.0], [-6.0, -1.0, -9.0]]


def test_a_row_is_worth_the_log_probs_of_what_the_policy_wrote() -> None:
    _, log_probs = log_probs_of(*ROWS)
    assert row_log_probs(log_probs, MASK).tolist() == [-3.0, -0.5, -4.0, -1.0]


def batch(**changes: Any) -> dict[str, Any]:
    reference = nested([-2.0], [-1.0], [-4.0], [-1.0])
    return {"loss_mask": MASK, "ref_log_prob": reference, "global_batch_size": 4, "dp_size": 2, **changes}


def test_the_loss_is_the_share_of_this_part_in_the_mean_over_all_pairs() -> None:
    _, log_probs = log_probs_of(*ROWS)
    loss, metrics = pair_loss({"log_probs": log_probs}, batch(), beta=0.5)
    # Margins: 0.5 ((-3 + 2) - (-0.5 + 1)) = -0.75, and 0.5 (0 - 0) = 0.
    expected = math.log1p(math.exp(0.75)) + math.log(2)
    assert loss.item() == pytest.approx(expected / 4 * 2, rel=1e-6)
    assert metrics == {"train/margin": pytest.approx(-0.75 / 4), "train/accuracy": 0.0}


def test_masked_tokens_have_no_influence_on_loss_and_gradient() -> None:
    clean, log_probs = log_probs_of(*ROWS)
    loss, _ = pair_loss({"log_probs": log_probs}, batch(), beta=0.5)
    loss.backward()
    noise = [[-1.0, math.nan, -2.0, 1e30], [math.inf, -0.5, -math.inf], [-4.0, math.nan], [1e30, -1.0, -1e30]]
    dirty, log_probs = log_probs_of(*noise)
    same, _ = pair_loss({"log_probs": log_probs}, batch(), beta=0.5)
    same.backward()
    assert clean.grad is not None and dirty.grad is not None
    assert same.item() == loss.item() and torch.equal(clean.grad, dirty.grad)
    assert clean.grad.nonzero().flatten().tolist() == [0, 2, 5, 7, 10]
    # Chosen ones gain, rejected ones lose.
    assert clean.grad[[0, 2, 7]].max() < 0 < clean.grad[[5, 10]].min()


def dataset(folder: Path, model: Path, *pairs: dict[str, Any], max_length: int = 128) -> PairDataset:
    write_json_lines(pairs, folder / "pairs.jsonl")
    return PairDataset(
        [str(folder / "pairs.jsonl")], model_path=str(model), settings=DpoSettings(), max_length=max_length
    )


def test_rows_of_pairs_lie_side_by_side_with_their_reference(tmp_path: Path, tiny_model: Path) -> None:
    pairs = dataset(tmp_path, tiny_model, PAIR, {**PAIR, "prompt": [{"role": "user", "content": "Double it."}]})
    assert len(pairs) == 2 and "ref_log_prob" not in pairs[0][0]
    pairs.reference_P2 = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    chosen, rejected = pairs[1]
    assert [row["ref_log_prob"].tolist() for row in (chosen, rejected)] == [[-3.0], [-4.0]]
    for row in (chosen, rejected):
        assert row["loss_mask"][0] == 0 and row["loss_mask"][-1] == 1
        assert row["position_ids"].tolist() == list(range(len(row["input_ids"]))) and len(row) == 4
    collated = SFTTensorCollator(DatasetPadMode.NO_PADDING)([*pairs[0], *pairs[1]])
    assert collated["ref_log_prob"].values().tolist() == [-1.0, -2.0, -3.0, -4.0]


def test_what_cannot_be_trained_names_its_line(tmp_path: Path, tiny_model: Path) -> None:
    with pytest.raises(DataError, match=r"pairs.jsonl:2: a pair lacks \['rejected'\]"):
        dataset(tmp_path, tiny_model, PAIR, {"prompt": PROMPT, "chosen": []})
    with pytest.raises(DataError, match=r"pairs.jsonl:1 has \d+ tokens, and data.max_length is 8"):
        dataset(tmp_path, tiny_model, PAIR, max_length=8)


@pytest.mark.parametrize(
    ("values", "message"), [({"bet": 0.1}, r"unknown keys in dpo, got \['bet'\]"), ({"beta": 0}, "must be above 0")]
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DpoSettings.from_mapping(values)
