"""Common parts of the DPO and outcome trainers: rows of log-probs, data, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from jagged import MASK, ROWS, log_probs_of
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.settings import read_settings
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.verl.extensions.offline import dpo_trainer, outcome_trainer
from verl_agentic.verl.extensions.offline.dpo_trainer import DpoSettings
from verl_agentic.verl.extensions.offline.outcome_trainer import OutcomeSettings
from verl_agentic.verl.extensions.offline.pair_trainer import ItemDataset, row_log_probs

PROMPT = [{"role": "user", "content": "Double 21."}]
CALL = {"role": "assistant", "text": "<tool_call>\n{}\n</tool_call><|im_end|>"}
LONG = [CALL, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "42"}]
SHORT = [{"role": "assistant", "content": "21"}]
PAIR = {"prompt": PROMPT, "chosen": LONG, "rejected": SHORT}
PLAYED = {"prompt": PROMPT, "messages": LONG, "outcome": 0.25}
KINDS: dict[str, Any] = {
    "pairs": (dpo_trainer.encode, DpoSettings()),
    "outcomes": (outcome_trainer.encode, OutcomeSettings()),
}


def test_a_row_is_worth_the_log_probs_of_what_the_policy_wrote() -> None:
    _, log_probs = log_probs_of(*ROWS)
    assert row_log_probs(log_probs, MASK).tolist() == [-3.0, -0.5, -4.0, -1.0]


def dataset(
    folder: Path, model: Path, *items: dict[str, Any], kind: str = "pairs", max_length: int = 128
) -> ItemDataset:
    path = folder / "items.jsonl"
    write_json_lines(items, path)
    encode, settings = KINDS[kind]
    return ItemDataset([str(path)], encode=encode, model_path=str(model), settings=settings, max_length=max_length)


def test_rows_of_an_item_lie_side_by_side_with_their_reference(tmp_path: Path, tiny_model: Path) -> None:
    pairs = dataset(tmp_path, tiny_model, PAIR, {**PAIR, "prompt": [{"role": "user", "content": "Double it."}]})
    assert len(pairs) == 2 and "ref_log_prob" not in pairs[0][0]
    pairs.reference_IR = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    chosen, rejected = pairs[1]
    assert [row["ref_log_prob"].tolist() for row in (chosen, rejected)] == [[-3.0], [-4.0]]
    for row in (chosen, rejected):
        assert row["loss_mask"][0] == 0 and row["loss_mask"][-1] == 1
        assert row["position_ids"].tolist() == list(range(len(row["input_ids"]))) and len(row) == 4
    collated = SFTTensorCollator(DatasetPadMode.NO_PADDING)([*pairs[0], *pairs[1]])
    assert collated["ref_log_prob"].values().tolist() == [-1.0, -2.0, -3.0, -4.0]


def test_a_trajectory_has_the_tokens_of_a_side_of_a_pair_and_its_outcome(tmp_path: Path, tiny_model: Path) -> None:
    (row,) = dataset(tmp_path, tiny_model, PLAYED, kind="outcomes")[0]
    chosen, _ = dataset(tmp_path, tiny_model, PAIR)[0]
    assert row.pop("outcome").tolist() == [0.25]
    assert set(row) == set(chosen) and all(torch.equal(row[name], chosen[name]) for name in row)


def test_what_cannot_be_trained_names_its_line(tmp_path: Path, tiny_model: Path) -> None:
    with pytest.raises(DataError, match="'rejected'"):
        dataset(tmp_path, tiny_model, PAIR, {"prompt": PROMPT, "chosen": []})
    with pytest.raises(DataError, match="'outcome'"):
        dataset(tmp_path, tiny_model, {"prompt": PROMPT, "messages": SHORT}, kind="outcomes")
    with pytest.raises(DataError, match=r"items\.jsonl"):
        dataset(tmp_path, tiny_model, PAIR, max_length=8)


@pytest.mark.parametrize("settings_type", [DpoSettings, OutcomeSettings])
def test_settings_that_make_no_sense_are_refused(settings_type: Any) -> None:
    section = settings_type.section
    with pytest.raises(ConfigError, match=rf"unknown keys in {section}, got \['bet'\]"):
        read_settings(settings_type, {"bet": 0.1}, section=section)
    with pytest.raises(ConfigError, match=rf"{section}.beta must be a number \(above 0\), got 0"):
        read_settings(settings_type, {"beta": 0}, section=section)


def test_every_section_has_its_own_name_and_its_papers_beta() -> None:
    named = {kind.section: kind().beta for kind in (DpoSettings, OutcomeSettings)}
    assert named == {"dpo": 0.1, "implicit_reward": 0.05}
