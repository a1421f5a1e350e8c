"""A tiny model, and engines that are closed when their test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.scheduler import EngineConfig

MakeEngine = Callable[..., InferenceEngine]


@pytest.fixture(scope="session")
def tokenizer(tiny_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def model(tiny_model: Path) -> Any:
    """A fresh copy of the model, sharpened so that sampling is not all but uniform."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    with torch.no_grad():
        model.model.norm.weight.mul_(2.0)
    return model


@pytest_asyncio.fixture
async def make_engine(model: Any, tokenizer: Any) -> AsyncIterator[MakeEngine]:
    """Makes engines, by default over `model`."""
    engines: list[InferenceEngine] = []

    def make(other: Any = None, **config: Any) -> InferenceEngine:
        engines.append(InferenceEngine(other or model, tokenizer, EngineConfig(**config)))
        return engines[-1]

    yield make
    for engine in engines:
        await engine.close()


@pytest_asyncio.fixture
async def engine(make_engine: MakeEngine) -> InferenceEngine:
    return make_engine()
