"""DPO on trajectories, with verl's SFT trainer: `torchrun ... -m verl_agentic.adapters.dpo_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `dpo` (`DpoSettings`). `data.train_files` are
JSON lines of pairs (`data.preference_pairs`); `train_batch_size` and `micro_batch_size_per_gpu` count pairs. Only what
a policy wrote counts: prompts, tool results and headers are masked. The reference is the model that training starts
from, LoRA adapters included: one pass over the data before the first step, and no second model in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, cast

import hydra
import torch
from omegaconf import OmegaConf
from torch.utils.data import Dataset
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.device import auto_set_device
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

from verl_agentic.adapters.chat import load_codec
from verl_agentic.algorithms.aggregate import masked
from verl_agentic.algorithms.dpo import dpo_loss
from verl_agentic.data.preference_pairs import SIDES, encode_pair
from verl_agentic.data.rows import read_json_lines
from verl_agentic.errors import ConfigError, DataError
from verl_agentic.trajectory import Trajectory

Tensor = torch.Tensor
_REFERENCE = "ref_log_prob"
_SUMS = ("train/margin", "train/accuracy")


@dataclass(frozen=True, kw_only=True)
class DpoSettings:
    """The section `dpo`."""

    beta: float = 0.1
    """How much the policy may move away from the reference."""
    tool_format: str = "hermes"
    """verl's tool parser, as in `rollout.multi_turn.format`."""
    protocol: str = "chat"
    """How actions are written, as in `rollout.custom.agentic.protocol`."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> DpoSettings:
        """Returns the settings of the section.

        Raises:
            ConfigError: an unknown key, or a beta that is not above 0.
        """
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError(f"unknown keys in dpo, got {unknown}; known ones: {sorted(known)}")
        settings = cls(**values)
        if not settings.beta > 0:
            raise ConfigError(f"dpo.beta must be above 0, got {settings.beta}; 0.1 is a common choice")
        return settings


class PairDataset(Dataset):
    """Pairs as tokens, in the order of the files."""

    def __init__(
        self, files: Sequence[str], *, model_path: str, settings: DpoSettings, max_length: int, max_pairs: int = -1
    ) -> None:
        """Reads and encodes all pairs.

        Raises:
            DataError: a pair is malformed, or a side of it is longer than `data.max_length`.
        """
        tokenizer, codec = load_codec(model_path, tool_format=settings.tool_format, protocol=settings.protocol)
        found = [(f"{file}:{number}", pair) for file in files for number, pair in read_json_lines(Path(file))]
        self._pairs = asyncio.run(
            _encode_all(found[: max_pairs if max_pairs >= 0 else None], codec, tokenizer, max_length)
        )
        self.reference_P2: Tensor | None = None
        """`[P, 2]` float32: log-probs of chosen and rejected under the reference, once known."""

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> list[dict[str, Tensor]]:
        """Returns the rows of a pair, chosen and rejected: `input_ids`, `loss_mask`, `position_ids` `[L]`."""
        rows = [_to_row(self._pairs[index][side]) for side in SIDES]
        if self.reference_P2 is not None:
            for row, log_prob in zip(rows, self.reference_P2[index], strict=True):
                row[_REFERENCE] = log_prob.reshape(1)
        return rows


async def _encode_all(
    found: Sequence[tuple[str, Mapping[str, Any]]], codec: Any, tokenizer: Any, max_length: int
) -> list[dict[str, Trajectory]]:
    pairs = []
    for where, pair in found:
        try:
            sides = await encode_pair(pair, codec=codec, tokenizer=tokenizer)
        except DataError as cause:
            raise DataError(f"{where}: {cause}") from cause
        if (longest := max(len(row.token_ids) for row in sides.values())) > max_length:
            raise DataError(f"{where} has {longest} tokens, and data.max_length is {max_length}; raise it")
        pairs.append(sides)
    return pairs


def _to_row(row: Trajectory) -> dict[str, Tensor]:
    ids = torch.tensor(row.token_ids)
    mask = torch.tensor([0] * len(row.prompt_ids) + row.response_mask)
    return {"input_ids": ids, "loss_mask": mask, "position_ids": torch.arange(len(ids))}


def row_log_probs(log_probs: Any, loss_mask: Any) -> Tensor:
    """Returns `[B]` float32: the log-prob of what the policy wrote, in every row.

    Args:
        log_probs: nested `[B, L]` float: at every place that of the token that comes next, as verl's engines give it.
        loss_mask: nested `[B, L]`: 1 on tokens that count; 0 on the first token of every row.
    """
    flat, lengths_B = log_probs.values(), log_probs.offsets().diff()
    # The place before a token says how likely it is. What the last place of a row gets is the next row's first token.
    mask = loss_mask.values().roll(-1).bool()
    rows = torch.arange(len(lengths_B), device=flat.device).repeat_interleave(lengths_B)
    return torch.zeros(len(lengths_B), device=flat.device).index_add(0, rows, masked(flat, mask))


def pair_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, beta: float
) -> tuple[Tensor, dict[str, float]]:
    """Returns the share of a micro-batch in the mean loss over all pairs of a batch, as verl's engines take it."""
    log_probs_B, reference_B = row_log_probs(model_output["log_probs"], data["loss_mask"]), _column(data[_REFERENCE])
    preference = dpo_loss(
        log_probs_B[0::2],
        log_probs_B[1::2],
        ref_chosen_P=reference_B[0::2],
        ref_rejected_P=reference_B[1::2],
        beta=beta,
    )
    num_pairs = data["global_batch_size"]
    metrics = {
        "train/margin": float(preference.margin_P.sum()) / num_pairs,
        "train/accuracy": float((preference.margin_P > 0).sum()) / num_pairs,
    }
    return preference.loss_P.sum() / num_pairs * data["dp_size"], metrics


def _column(nested: Tensor) -> Tensor:
    return nested.values() if nested.is_nested else nested.squeeze(-1)


class DpoTrainer(SFTTrainer):
    """verl's SFT trainer on pairs."""

    def _build_dataset(self) -> None:
        self.settings = DpoSettings.from_mapping(_plain(self.config.get("dpo") or {}))
        data = self.config.data
        if data.pad_mode != "no_padding":
            raise ConfigError(f"dpo_trainer needs data.pad_mode=no_padding, got {data.pad_mode!r}; set it")
        self.train_dataset = self._read(data.train_files, data.get("train_max_samples", -1))
        self.val_dataset = self._read(data.val_files, data.get("val_max_samples", -1)) if data.val_files else None

    def _read(self, files: Any, max_pairs: int) -> PairDataset:
        names = [files] if isinstance(files, str) else list(files)
        path = self.model_config.local_path
        length = self.config.data.max_length
        return PairDataset(names, model_path=path, settings=self.settings, max_length=length, max_pairs=max_pairs)

    def _build_engine(self) -> None:
        super()._build_engine()
        client = self.training_client
        client.set_loss_fn(partial(pair_loss, beta=self.settings.beta))
        client.train_batch = _in_pairs(client.train_batch)
        client.infer_batch = _in_pairs(client.infer_batch)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        self._collate_rows = self.collate_fn
        for loader in (self.train_dataloader, self.val_dataloader):
            if loader is not None:
                loader.collate_fn = self._collate

    def _collate(self, pairs: Sequence[list[dict[str, Tensor]]]) -> dict[str, Any]:
        return self._collate_rows([row for pair in pairs for row in pair])

    def _init_engine(self) -> None:
        super()._init_engine()
        # A checkpoint is loaded after this: what the engine holds now is the reference.
        for dataset in (self.train_dataset, self.val_dataset):
            if dataset is not None:
                dataset.reference_P2 = self._reference_log_probs(dataset)

    def _reference_log_probs(self, dataset: PairDataset) -> Tensor:
        """Returns `[P, 2]`: every rank computes its share, in batches that are as full on all of them."""
        rank, size = self.engine.get_data_parallel_rank(), self.engine.get_data_parallel_size()
        count = self.train_batch_size_per_dp
        found: dict[int, list[float]] = {}
        for start in range(0, len(dataset), count * size):
            places = [(start + rank * count + offset) % len(dataset) for offset in range(count)]
            batch = self._collate([dataset[place] for place in places])
            output = self.training_client.infer_batch(tu.get_tensordict(batch, self._infer_info()))
            if output is not None:
                sums = row_log_probs(output["log_probs"], batch["loss_mask"]).reshape(-1, 2)
                found.update(zip(places, sums.tolist(), strict=True))
        shares: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(shares, found)
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


def _in_pairs(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a batch be split between pairs only, and adds up what its parts say in their metrics."""

    def call(data: Any) -> Any:
        tu.assign_non_tensor(data, force_group_size=2)
        output = original(data=data)
        if output is not None:
            metrics = tu.get(output, "metrics")
            metrics.update({name: _total(metrics[name]) for name in _SUMS if name in metrics})
        return output

    return call


def _total(shares: Any) -> float:
    return sum(map(_total, shares)) if isinstance(shares, list) else float(shares)


def _plain(section: Any) -> dict[str, Any]:
    plain = OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section
    return dict(cast("Mapping[str, Any]", plain))


@hydra.main(config_path="pkg://verl.trainer.config", config_name="sft_trainer_engine", version_base=None)
def main(config: Any) -> None:
    """Trains as the command line says."""
    auto_set_device(config)
    initialize_global_process_group()
    DpoTrainer(config).fit()
    destroy_global_process_group()


if __name__ == "__main__":
    main()
