"""The experiment about gradients that are not finite finds planted faults of each stage."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import _gpu_nan
from _gpu_nan import Size, Variant, narrow_nan

TINY = Size(layers=1, hidden=16, heads=2, kv_heads=1, head_dim=8, rows=2, tokens=16, prompt=4, vocabulary=32)


class Record:
    device = "cpu"

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []

    def note(self, figures: Mapping[str, Any]) -> None:
        self.notes.append(dict(figures))


class Broken(torch.autograd.Function):
    """Passes a tensor on, and gives NaN as its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return torch.full_like(gradient, math.nan)


@pytest.fixture
def few_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_nan, "kernel_variants", lambda size: [Variant()])
    chosen = [Variant(), Variant(name="math", backend="math"), Variant(name="sum of log-probs", loss="sum")]
    monkeypatch.setattr(_gpu_nan, "model_variants", lambda: chosen)


def break_attention(monkeypatch: pytest.MonkeyPatch, *, is_broken: Callable[[torch.Tensor], bool]) -> None:
    attend = F.scaled_dot_product_attention

    def attend_badly(query: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        return attend(Broken.apply(query) if is_broken(query) else query, *args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend_badly)


def is_fused(_: torch.Tensor) -> bool:
    return torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.usefixtures("few_variants")
def test_a_kernel_with_a_bad_gradient_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    break_attention(monkeypatch, is_broken=is_fused)
    figures = narrow_nan(Record(), size=TINY)
    kernels = figures["nan: attention"]["as it failed"]
    assert kernels["flash"]["bad"] == ["dq"] and kernels["math"]["bad"] == []
    assert "flash (as it failed): dq" in figures["nan: cause"]
    models = figures["nan: model"]
    assert models["as it failed"]["first"].startswith("backward, output of model.layers.0.self_attn.q_norm")
    assert math.isnan(models["as it failed"]["norm"]) and models["math"]["first"] == ""


@pytest.mark.usefixtures("few_variants")
def test_a_fault_inside_a_model_is_named_with_what_is_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    pick = _gpu_nan.load_policy_loss
    monkeypatch.setattr(_gpu_nan, "load_policy_loss", lambda name: lambda batch: _with_bad_values(pick(name)(batch)))
    figures = narrow_nan(Record(), size=TINY)
    assert figures["nan: cause"] == "the model is not finite, first in loss 0; finite are: sum of log-probs"


def _with_bad_values(loss: Any) -> Any:
    loss.per_token_BT[0, 5] += math.inf
    return loss


@pytest.mark.usefixtures("few_variants")
def test_a_fault_of_the_engine_alone_is_named_and_a_cut_run_has_what_it_found() -> None:
    record = Record()
    figures = narrow_nan(record, update=lambda: math.nan, size=TINY)
    assert "only verl's engine" in figures["nan: cause"]
    assert math.isnan(figures["nan: engine"]["without cudnn"])
    assert len(record.notes) == 1 + 3 + 3 and "nan: model" not in record.notes[0]
    assert narrow_nan(record, size=TINY)["nan: cause"] == "all is finite here"
    assert narrow_nan(record, size=TINY, seconds=0)["nan: cause"] == "not decided"


def test_the_first_variant_is_the_run_that_failed_and_each_other_one_changes_a_thing() -> None:
    for variants in (list(_gpu_nan.kernel_variants(_gpu_nan.GPU)), list(_gpu_nan.model_variants())):
        assert variants[0] == Variant() and len({variant.name for variant in variants}) == len(variants)
        assert len(set(variants)) == len(variants)
