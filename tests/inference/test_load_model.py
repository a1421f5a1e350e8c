"""Loading of models: missing weights are refused, and attention avoids kernels with known faults."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from verl_agentic.base.errors import DataError
from verl_agentic.cpu.inference.load_model import load_causal_lm
from verl_agentic.cpu.log_ratio import LogRatio
from verl_agentic.credit.cudnn_attention import VARIABLE


def changed(tiny_model: Path, folder: Path, rename: str) -> Path:
    """Returns a copy whose first layer's weights have other names."""
    shutil.copytree(tiny_model, folder)
    weights = {
        name.replace("model.layers.0.", rename): one for name, one in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_with_the_names_of_lora_are_not_replaced_by_random_ones(tiny_model: Path, tmp_path: Path) -> None:
    lora = changed(tiny_model, tmp_path / "lora", "base_model.model.model.layers.0.")
    with pytest.raises(DataError, match=r"model\.layers"):
        LogRatio.from_pretrained(lora, tiny_model)


@pytest.mark.parametrize(("chosen", "expected"), [(None, "1"), ("0", "0")])
def test_a_loaded_model_avoids_cudnns_attention_unless_the_environment_chooses(
    chosen: str | None, expected: str, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")  # restored afterwards
    monkeypatch.delenv(VARIABLE)
    if chosen is not None:
        monkeypatch.setenv(VARIABLE, chosen)
    load_causal_lm(tiny_model)
    assert os.environ[VARIABLE] == expected


async def test_a_diverged_model_chooses_nothing(tiny_model: Path) -> None:
    phi, reference = (load_causal_lm(tiny_model) for _ in range(2))
    assert await LogRatio(phi, reference).of([5, 6], [7, 8], [1, 0]) == 0.0
    with torch.no_grad():
        next(phi.parameters()).fill_(float("nan"))
    with pytest.raises(DataError, match="nan"):
        await LogRatio(phi, reference).of([5, 6], [7, 8], [1, 0])
