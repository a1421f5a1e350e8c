"""Episodes as SFT data; the mask of SFT is the mask of RL, because the same loop made it.

Choose it in verl's SFT trainer with `data.custom_cls.path=pkg://verl_agentic.data.datasets.sft` and
`data.custom_cls.name=TrajectoryDataset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from verl_agentic.base.errors import DataError
from verl_agentic.data.datasets.id_rows import check_ids
from verl_agentic.episode.records.episode import Episode
from verl_agentic.log.files.record_files import numbered_records, refuse_dates, write_json_lines


def write_sft(episodes: Iterable[Episode], path: Path, *, marks: Mapping[str, Any] | None = None) -> int:
    """Writes the training rows of all episodes that are not void, each with the marks; returns how many."""
    records = (
        {
            "input_ids": trajectory.token_ids,
            "loss_mask": [0] * len(trajectory.prompt_ids) + trajectory.response_mask,
            **(marks or {}),
        }
        for episode in episodes
        if not episode.is_void
        for trajectory in episode.trajectories
    )
    return write_json_lines(refuse_dates(records, path), path)


class TrajectoryDataset(Dataset):
    """Dataset of the files of `write_sft` and `verl-agentic data export`, for verl's SFT trainer (`no_padding`)."""

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        """Reads the rows of all files (JSON lines or parquet); the argument names are verl's.

        Raises:
            DataError: a row is malformed, or longer than `data.max_length`; `data.pad_mode` is not `no_padding`.
        """
        if config.get("pad_mode") != "no_padding":
            raise DataError(f"TrajectoryDataset needs data.pad_mode=no_padding, got {config.get('pad_mode')!r}; set it")
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = [
            _check_row(row, f"{file}:{number}", vocab_size=len(tokenizer), max_length=config.get("max_length"))
            for file in files
            for number, row in numbered_records(Path(file))
        ]
        self._rows = rows if max_samples < 0 else rows[:max_samples]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Returns `input_ids`, `loss_mask`, `position_ids`, each `[L] int64`; the mask of the first token is 0.

        Nothing predicts the first token. verl's loss rolls the masks of a batch by one token, so a 1 there would train
        the last position of the row before it to predict it.
        """
        row = self._rows[index]
        input_ids = torch.tensor(row["input_ids"], dtype=torch.int64)
        return {
            "input_ids": input_ids,
            "loss_mask": torch.tensor([0, *row["loss_mask"][1:]], dtype=torch.int64),
            "position_ids": torch.arange(len(input_ids), dtype=torch.int64),
        }


def _check_row(row: dict[str, Any], location: str, *, vocab_size: int, max_length: int | None) -> dict[str, Any]:
    try:
        check_ids(row, ids="input_ids", mask="loss_mask", vocab_size=vocab_size)
    except DataError as cause:
        raise DataError(f"{location}: {cause}") from cause
    if max_length is not None and len(row["input_ids"]) > max_length:
        raise DataError(f"{location} has {len(row['input_ids'])} tokens, and data.max_length is {max_length}; raise it")
    return row
