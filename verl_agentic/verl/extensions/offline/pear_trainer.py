"""SFT with PEAR weights, with verl's SFT trainer: `torchrun ... -m verl_agentic.verl.extensions.offline.pear_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `pear` (`PearSettings`). `data.train_files` are
JSON lines or parquet of training rows with the log-probs of the policy that wrote them: `prompt_ids`, `response_ids`,
`response_mask`, `turn_ids`, `rollout_log_probs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from verl_agentic.base.errors import DataError
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.methods.losses.pear import PearSettings, pear_weights
from verl_agentic.verl.extensions.offline.pair_trainer import OfflineTrainer, run

_PER_TOKEN = ("response_mask", "turn_ids", "rollout_log_probs")


class BehaviourDataset(Dataset):
    """Training rows with the log-probs of their author, in the order of the files."""

    def __init__(self, files: Sequence[str], *, vocab_size: int, max_length: int, max_rows: int = -1) -> None:
        """Reads all rows.

        Raises:
            DataError: a row is malformed, has no log-probs, or is longer than `data.max_length`.
        """
        records = [(f"{file}:{number}", row) for file in files for number, row in numbered_records(Path(file))]
        self._rows = [(place, self.read(row, place)) for place, row in records[: max_rows if max_rows >= 0 else None]]
        for place, row in self._rows:
            _check_row(row, place, vocab_size=vocab_size, max_length=max_length)

    def read(self, row: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """Returns a record of a file as a training row. Raises DataError if it cannot be one."""
        return row

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Returns `input_ids`, `loss_mask`, `position_ids`, `turn_ids` and `behaviour_log_probs`, each `[L]`."""
        _, row = self._rows[index]
        ids = torch.tensor(row["prompt_ids"] + row["response_ids"])
        mask, turns, log_probs = (
            torch.tensor([0] * len(row["prompt_ids"]) + row[name], dtype=kind)
            for name, kind in zip(_PER_TOKEN, (torch.int64, torch.int64, torch.float32), strict=True)
        )
        position_ids = torch.arange(len(ids))
        return {"input_ids": ids, "loss_mask": mask, "position_ids": position_ids, "turn_ids": turns,
                "behaviour_log_probs": log_probs}  # fmt: skip


def _check_row(row: Mapping[str, Any], place: str, *, vocab_size: int, max_length: int) -> None:
    prompt, response = row.get("prompt_ids"), row.get("response_ids")
    lengths = {name: len(row.get(name) or ()) for name in _PER_TOKEN}
    if not prompt or not response or set(lengths.values()) != {len(response)} or 1 not in row["response_mask"]:
        raise DataError(
            f"{place} needs prompt_ids, response_ids and as many values of {', '.join(_PER_TOKEN)}, got lengths "
            f"{lengths}; export rows of a policy that gives log-probs"
        )
    sampled = (value for value, bit in zip(row["rollout_log_probs"], row["response_mask"], strict=True) if bit)
    if not all(map(math.isfinite, sampled)):
        raise DataError(f"{place} has rollout_log_probs of sampled tokens that are not finite; leave the row out")
    ids = [*prompt, *response]
    if not 0 <= min(ids) <= max(ids) < vocab_size or len(ids) > max_length:
        raise DataError(
            f"{place} has {len(ids)} tokens with ids up to {max(ids)}, and data.max_length is {max_length}, the "
            f"vocabulary {vocab_size}; raise data.max_length, or use the tokenizer of the data"
        )


def weighted_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, settings: PearSettings
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a micro-batch's share of the mean weighted loss over the sampled tokens of a batch.

    `train/pear_weight` is the mean weight of a sampled token.
    """
    log_probs = model_output["log_probs"]
    loss, total = torch.zeros((), device=log_probs.device), 0.0
    ends = log_probs.offsets().tolist()
    flat = {name: data[name].values() for name in ("loss_mask", "turn_ids", "behaviour_log_probs")}
    for start, end in pairwise(ends):
        # A token's log-prob is at the position before it.
        mask_T, turns_T, behaviour_T = (column[start + 1 : end] for column in flat.values())
        is_sampled_T = mask_T.bool()
        log_prob_N = log_probs.values()[start : end - 1][is_sampled_T]
        weight_N = pear_weights(log_prob_N - behaviour_T[is_sampled_T], turns_T[is_sampled_T], settings)
        loss = loss - (weight_N * log_prob_N).sum()
        total += float(weight_N.sum())
    num_tokens = float(data["batch_num_tokens"])
    return loss / num_tokens * data["dp_size"], {"train/pear_weight": total / num_tokens}


class PearTrainer(OfflineTrainer):
    """verl's SFT trainer on rows with the log-probs of their author."""

    settings_type = PearSettings
    loss: Callable[..., Any] = staticmethod(weighted_loss)

    def make_dataset(self, files: list[str], max_items: int) -> BehaviourDataset:
        """Returns the rows of files."""
        size, max_length = len(self.model_config.tokenizer), self.config.data.max_length
        return self.read_rows(files, vocab_size=size, max_length=max_length, max_rows=max_items)

    def read_rows(self, files: list[str], **options: Any) -> BehaviourDataset:
        """Reads the rows; see `BehaviourDataset`."""
        return BehaviourDataset(files, **options)


if __name__ == "__main__":
    run(PearTrainer)
