"""Merges Hugging Face folders of models with one base, one tensor at a time.

The merged files have the names, headers and types of the base's. A tensor is written as soon as it is merged, so memory
holds one tensor of every model. `config.json` is copied last: an incomplete folder does not load.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open

from verl_agentic.base.errors import DataError
from verl_agentic.data.model_merge_math import ActiveCounts, active_counts, merge_mean, merge_ram

Method = Literal["ram", "mean"]
_INDEX, _CONFIG = "model.safetensors.index.json", "config.json"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TIED = "lm_head.weight"
_BLOCK = 2**24


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """Shares of coordinates that the models changed, one value per model."""

    num_parameters: int
    active: list[float]
    shared: list[float]
    """Another model changed them too; part of `active`."""
    scales: list[float]
    """Factors of the unique updates."""


def merge_models(
    base: Path,
    models: Sequence[Path],
    out: Path,
    *,
    method: Method = "ram",
    threshold: float = 1e-5,
    rescale: float = 1.0,
    on_tensor: Callable[[str], None] = lambda name: None,
) -> MergeReport:
    """Writes the merged model and returns what was merged.

    Args:
        base: folder of the model that all others were trained from; gives config and tokenizer.
        models: two or more folders.
        out: folder, which must not exist or be empty.
        method: `ram` (`merge_ram`), or `mean` of all updates.
        threshold: a coordinate is active if it differs from the base by more than this; the authors' value.
        rescale: maximum factor of unique updates. Above 1, all files are read twice.
        on_tensor: called with the name of each tensor before it is merged.

    Raises:
        DataError: a folder has no safetensors, the models differ in tensors or shapes, or `out` is not empty.

    Paper: https://arxiv.org/abs/2601.13572
    Deviations: a model without unique updates has scale 1 + (rescale - 1) instead of a division by zero.
    """
    if out.exists() and any(out.iterdir()):
        raise DataError(f"the merged model needs an empty folder, got {out}; choose another --out")
    with ExitStack() as stack:
        opened = [_Weights(folder, stack) for folder in (base, *models)]
        first, tuned = opened[0], opened[1:]
        for weights in tuned:
            _check_fit(first, weights)
        scales = [1.0] * len(models)
        if method == "ram" and rescale != 1.0:
            scales = _count_active(first, tuned, threshold).scales(rescale)
        counts, num_parameters = _make_zero_counts(len(models)), 0
        out.mkdir(parents=True, exist_ok=True)
        for path in first.files:
            with (out / path.name).open("wb") as file:
                file.write(_read_header(path))
                for name in _names_in_file(path):
                    on_tensor(name)
                    for block, others in _iter_blocks(name, first, tuned):
                        num_parameters += len(block)
                        counts += active_counts(block, others, threshold=threshold)
                        merged = (
                            merge_ram(block, others, threshold=threshold, scales=scales)
                            if method == "ram"
                            else merge_mean(block, others)
                        )
                        file.write(merged.view(torch.uint8).numpy().tobytes())
    _copy_rest(base, out)
    return MergeReport(
        num_parameters=num_parameters,
        active=((counts.shared_M + counts.unique_M) / num_parameters).tolist(),
        shared=(counts.shared_M / num_parameters).tolist(),
        scales=scales,
    )


class _Weights:
    """The tensors of a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        index = folder / _INDEX
        named = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else {"model.safetensors"}
        self.files = [folder / name for name in sorted(named)]
        if missing := [path.name for path in self.files if not path.is_file()]:
            raise DataError(
                f"{folder} lacks {missing}; name a Hugging Face folder with safetensors, and merge shards of a "
                "checkpoint (verl.model_merger) or a LoRA adapter into their model first"
            )
        opened = [stack.enter_context(safe_open(path, framework="pt")) for path in self.files]
        self._files_by_name: dict[str, Any] = {name: file for file in opened for name in file.keys()}  # noqa: SIM118

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {name: file.get_slice(name).get_shape() for name, file in self._files_by_name.items()}

    def read(self, name: str) -> torch.Tensor:
        return self._files_by_name[name].get_tensor(name)


def _check_fit(base: _Weights, other: _Weights) -> None:
    config = json.loads((base.folder / _CONFIG).read_text(encoding="utf-8"))
    ours, theirs = base.shapes, other.shapes
    if config.get("tie_word_embeddings") and _TIED not in ours:
        theirs.pop(_TIED, None)  # some savers write the copy
    if differing := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        name = differing[0]
        raise DataError(
            f"{other.folder} does not fit the base {base.folder}: {len(differing)} tensors differ, got {name} with "
            f"shape {theirs.get(name)} instead of {ours.get(name)}; merge models that were trained from this base"
        )


def _count_active(base: _Weights, tuned: Sequence[_Weights], threshold: float) -> ActiveCounts:
    counts = _make_zero_counts(len(tuned))
    for name in base.shapes:
        for block, others in _iter_blocks(name, base, tuned):
            counts += active_counts(block, others, threshold=threshold)
    return counts


def _iter_blocks(
    name: str, base: _Weights, tuned: Sequence[_Weights]
) -> Iterator[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
    """Yields flat pieces of a tensor of all models, so that float32 copies stay small."""
    tensors = [weights.read(name).flatten() for weights in (base, *tuned)]
    if not tensors[0].is_floating_point():
        raise DataError(f"weights must be floats, got {name} of {tensors[0].dtype}; merge models before quantisation")
    for block, *others in zip(*(tensor.split(_BLOCK) for tensor in tensors), strict=True):
        yield block, tuple(others)


def _make_zero_counts(num_models: int) -> ActiveCounts:
    zero_M = torch.zeros(num_models, dtype=torch.int64)
    return ActiveCounts(shared_M=zero_M, unique_M=zero_M)


def _read_header(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(8)
        return start + file.read(struct.unpack("<Q", start)[0])


def _names_in_file(path: Path) -> Iterator[str]:
    """Yields the tensors in the order of their bytes."""
    entries = json.loads(_read_header(path)[8:])
    entries.pop("__metadata__", None)
    yield from sorted(entries, key=lambda name: entries[name]["data_offsets"])


def _copy_rest(base: Path, out: Path) -> None:
    """Copies all files besides weights, the config last."""
    files = [path for path in base.iterdir() if path.is_file() and path.suffix not in _WEIGHTS]
    for path in sorted(files, key=lambda path: path.name == _CONFIG):
        shutil.copy(path, out / path.name)
