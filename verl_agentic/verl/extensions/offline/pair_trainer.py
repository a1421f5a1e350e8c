"""verl's SFT trainer for losses that compare whole trajectories with the initial model.

Each record of a file (JSON lines or parquet) is an item of one or more trajectories, which stay in one micro-batch.
`train_batch_size` and `micro_batch_size_per_gpu` count items. Prompts, tool results and headers are masked. The
reference is the initial model, LoRA adapters included. Its log-probs are computed in one pass before the first step,
without a second model in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import hydra
import torch
from torch import Tensor
from torch.utils.data import Dataset
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.device import auto_set_device
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.settings import Settings, read_settings, setting
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.credit.aggregate import masked
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.verl.rollout.model_codec import load_codec
from verl_agentic.verl.sections import plain

REFERENCE = "ref_log_prob"
"""Column `[B, 1]` of the log-probs of whole rows under the reference."""


class ReferenceSettings(Settings):
    """Options shared by the sections of these trainers."""

    section: ClassVar[str]
    """Its name in the configuration."""

    beta: float = setting(above=0)
    """Scale of the log-ratio to the reference."""
    tool_format: str = "hermes"
    """verl's tool parser, as in `rollout.multi_turn.format`."""
    protocol: str = "chat"
    """Format of actions, as in `agentic.protocol`."""


@dataclass(frozen=True, kw_only=True)
class EncodedRow:
    """One trajectory of an item."""

    trajectory: Trajectory
    labels: Mapping[str, float]
    """Columns `[B, 1]` for the loss."""


class ItemDataset(Dataset):
    """Items as tokens, in the order of the files."""

    def __init__(
        self,
        files: Sequence[str],
        *,
        encode: Callable[..., Any],
        model_path: str,
        settings: ReferenceSettings,
        max_length: int,
        max_items: int = -1,
    ) -> None:
        """Reads and encodes all items.

        Args:
            files: JSON lines or parquet.
            encode: `(item, *, codec, tokenizer) -> list[EncodedRow]`, a coroutine.
            settings: tool format and protocol.
            max_length: `data.max_length`, in tokens.
            max_items: maximum number over all files; -1: all.

        Raises:
            DataError: an item is malformed, or one of its rows is longer than `data.max_length`.
        """
        tokenizer, codec = load_codec(model_path, tool_format=settings.tool_format, protocol=settings.protocol)
        records = [(f"{file}:{number}", item) for file in files for number, item in numbered_records(Path(file))]
        encode = partial(encode, codec=codec, tokenizer=tokenizer)
        self._items = asyncio.run(_encode_all(records[: max_items if max_items >= 0 else None], encode, max_length))
        self.reference_IR: Tensor | None = None
        """`[I, R]` float32: log-probs of the rows of every item under the reference, once known."""

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> list[dict[str, Tensor]]:
        """Returns the rows of an item: `input_ids`, `loss_mask`, `position_ids` `[L]`, labels and reference `[1]`."""
        rows = [_to_columns(row) for row in self._items[index]]
        if self.reference_IR is not None:
            for row, log_prob in zip(rows, self.reference_IR[index], strict=True):
                row[REFERENCE] = log_prob.reshape(1)
        return rows


async def _encode_all(
    records: Sequence[tuple[str, Mapping[str, Any]]], encode: Callable[..., Any], max_length: int
) -> list[list[EncodedRow]]:
    items = []
    for place, item in records:
        try:
            rows = await encode(item)
        except DataError as cause:
            raise DataError(f"{place}: {cause}") from cause
        if (longest := max(len(row.trajectory.token_ids) for row in rows)) > max_length:
            raise DataError(f"{place} has {longest} tokens, and data.max_length is {max_length}; raise it")
        items.append(rows)
    return items


def _to_columns(row: EncodedRow) -> dict[str, Tensor]:
    ids = torch.tensor(row.trajectory.token_ids)
    mask = torch.tensor([0] * len(row.trajectory.prompt_ids) + row.trajectory.response_mask)
    labels = {name: torch.tensor([value]) for name, value in row.labels.items()}
    return {"input_ids": ids, "loss_mask": mask, "position_ids": torch.arange(len(ids)), **labels}


def row_log_probs(log_probs: Any, loss_mask: Any) -> Tensor:
    """Returns `[B]` float32: the log-prob of the policy's tokens in every row.

    Args:
        log_probs: nested `[B, L]` float: at every position that of the next token, as in verl's engines.
        loss_mask: nested `[B, L]`: 1 on tokens that count; 0 on the first token of every row.
    """
    flat, lengths_B = log_probs.values(), log_probs.offsets().diff()
    # A token's log-prob is at the position before it. The last position of a row has that of the next row's first
    # token.
    mask = loss_mask.values().roll(-1).bool()
    rows = torch.arange(len(lengths_B), device=flat.device).repeat_interleave(lengths_B)
    return torch.zeros(len(lengths_B), device=flat.device).index_add(0, rows, masked(flat, mask))


def row_column(nested: Tensor) -> Tensor:
    """Returns `[B]` of a column with one number per row."""
    return nested.values() if nested.is_nested else nested.squeeze(-1)


class OfflineTrainer(SFTTrainer):
    """verl's SFT trainer on items with a section of settings; subclasses define items and loss."""

    settings_type: type[Any]
    rows_per_item: int = 1
    loss: Callable[..., Any]
    """`(model_output, data, dp_group=None, *, settings) -> (loss, metrics)`, static: the share of a micro-batch in the
    mean over a batch of items. The metrics are shares too, and called `train/*`."""

    def _build_dataset(self) -> None:
        kind = self.settings_type
        self.settings = read_settings(kind, plain(self.config.get(kind.section)), section=kind.section)
        data = self.config.data
        if data.pad_mode != "no_padding":
            raise ConfigError(f"section {kind.section} needs data.pad_mode=no_padding, got {data.pad_mode!r}; set it")
        self.train_dataset = self._read_items(data.train_files, data.get("train_max_samples", -1))
        self.val_dataset = self._read_items(data.val_files, data.get("val_max_samples", -1)) if data.val_files else None

    def _read_items(self, files: Any, max_items: int) -> Dataset:
        return self.make_dataset([files] if isinstance(files, str) else list(files), max_items)

    def make_dataset(self, files: list[str], max_items: int) -> Dataset:
        """Returns the items of files."""
        raise NotImplementedError

    def _build_engine(self) -> None:
        super()._build_engine()
        client = self.training_client
        client.set_loss_fn(partial(self.loss, settings=self.settings))
        client.train_batch = in_items(client.train_batch, self.rows_per_item)
        client.infer_batch = in_items(client.infer_batch, self.rows_per_item)


class ReferenceTrainer(OfflineTrainer):
    """A trainer whose loss compares with the initial model."""

    encode: Callable[..., Any]
    """See `ItemDataset`; a static method."""

    def make_dataset(self, files: list[str], max_items: int) -> ItemDataset:
        """Returns the items of files, encoded."""
        return ItemDataset(
            files,
            encode=self.encode,
            model_path=self.model_config.local_path,
            settings=self.settings,
            max_length=self.config.data.max_length,
            max_items=max_items,
        )

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        self._collate_rows = self.collate_fn
        for loader in (self.train_dataloader, self.val_dataloader):
            if loader is not None:
                loader.collate_fn = self._collate_items

    def _collate_items(self, items: Sequence[list[dict[str, Tensor]]]) -> dict[str, Any]:
        return self._collate_rows([row for item in items for row in item])

    def _init_engine(self) -> None:
        super()._init_engine()
        # The engine holds the reference now; a checkpoint is loaded later.
        for dataset in (self.train_dataset, self.val_dataset):
            if isinstance(dataset, ItemDataset):
                dataset.reference_IR = self._reference_log_probs(dataset)

    def _reference_log_probs(self, dataset: ItemDataset) -> Tensor:
        """Returns `[I, R]`: every rank computes its share, in batches of equal size."""
        rank, size = self.engine.get_data_parallel_rank(), self.engine.get_data_parallel_size()
        count = self.train_batch_size_per_dp
        sums_by_place: dict[int, list[float]] = {}
        for start in range(0, len(dataset), count * size):
            places = [(start + rank * count + offset) % len(dataset) for offset in range(count)]
            batch = self._collate_items([dataset[place] for place in places])
            output = self.training_client.infer_batch(tu.get_tensordict(batch, self._infer_info()))
            if output is not None:
                sums = row_log_probs(output["log_probs"], batch["loss_mask"]).reshape(-1, self.rows_per_item)
                sums_by_place.update(zip(places, sums.tolist(), strict=True))
        shares: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(shares, sums_by_place)
        every = {place: sums for share in shares for place, sums in share.items()}
        return torch.tensor([every[place] for place in range(len(dataset))])

    def _infer_info(self) -> dict[str, Any]:
        data = self.config.data
        return {
            "use_remove_padding": self.config.model.use_remove_padding,
            "use_dynamic_bsz": data.use_dynamic_bsz,
            "max_token_len_per_gpu": data.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": data.micro_batch_size_per_gpu,
            "temperature": 1.0,
            "pad_mode": data.pad_mode,
            "pad_token_id": self.model_config.tokenizer.pad_token_id,
            "compute_loss": False,
        }


def in_items(original: Callable[..., Any], rows_per_item: int) -> Callable[..., Any]:
    """Wraps a call on a batch: splits it between items only, and sums the metrics of the parts."""

    def call(data: Any) -> Any:
        tu.assign_non_tensor(data, force_group_size=rows_per_item)
        output = original(data=data)
        if output is not None:
            metrics = tu.get(output, "metrics")
            metrics.update({name: _sum_shares(metrics[name]) for name in metrics if name.startswith("train/")})
        return output

    return call


def _sum_shares(shares: Any) -> float:
    return sum(map(_sum_shares, shares)) if isinstance(shares, list) else float(shares)


def run(trainer: type[SFTTrainer]) -> None:
    """Trains with the configuration of verl's SFT trainer and the command line."""

    @hydra.main(config_path="pkg://verl.trainer.config", config_name="sft_trainer_engine", version_base=None)
    def main(config: Any) -> None:
        auto_set_device(config)
        initialize_global_process_group()
        trainer(config).fit()
        destroy_global_process_group()

    main()
