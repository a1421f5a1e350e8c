"""Rows of one prompt in a pack have the log-probs, entropies and gradients of single rows."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.verl.engine import sampled_log_probs, shared_prompts
from verl_agentic.verl.extensions.cpu.cpu_engine import CpuEngineWithLMHead

assert sampled_log_probs, "patches the engine"
VOCABULARY = 100


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_impl, "get_device_id", lambda: "cpu")
    monkeypatch.setattr(transformer_impl, "get_device_name", lambda: "cpu")


def nested(rows: list[list[int]]) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def micro_batch(prompts: list[list[int]], *, seed: int) -> TensorDict:
    """Returns rows with these prompts; their responses have 1 to 12 tokens, some of them observations."""
    rng = random.Random(seed)
    responses = [[rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))] for _ in prompts]
    masks = [[int(rng.random() < 0.7) for _ in response] for response in responses]
    rows = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    columns = {
        "input_ids": nested(rows),
        "position_ids": nested([list(range(len(row))) for row in rows]),
        "response_mask": nested(masks),
        "temperature": torch.tensor([rng.choice([0.7, 1.0]) for _ in rows]),
    }
    batch = TensorDict(columns, batch_size=len(rows))
    tu.assign_non_tensor(
        batch, use_fused_kernels=True,
        calculate_entropy=True, use_remove_padding=False,
    )  # fmt: skip
    return batch


class Engine(CpuEngineWithLMHead):
    """The engine as far as it takes steps, on one rank."""

    def __init__(self, module: Any, *, shares: bool) -> None:
        self.module, self.tokens = module, []
        self.engine_config = SimpleNamespace(
            entropy_checkpointing=False, entropy_from_logits_with_chunking=False, strategy="fsdp2"
        )
        self.model_config = SimpleNamespace(
            use_fused_kernels=True, fused_kernel_options={"impl_backend": "sampled", "shared_prompts": shares}
        )
        self.compute_entropy_from_logits = entropy_from_logits
        self.pad_to_length = self.use_ulysses_sp = False
        self.ulysses_sequence_parallel_size, self._autocast_dtype = 1, torch.float32

    def get_data_parallel_size(self) -> int:
        return 1

    def get_data_parallel_group(self) -> None:
        return None

    def prepare_model_inputs(self, micro_batch: Any) -> Any:
        inputs, args = FSDPEngineWithLMHead.prepare_model_inputs(self, micro_batch)
        self.tokens.append(inputs["input_ids"].numel())
        return inputs, args


def load(folder: Path, **options: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)


def step(folder: Path, batch: TensorDict, *, shares: bool, **options: Any) -> tuple[Engine, Any, Any]:
    engine = Engine(load(folder, **options), shares=shares)
    kept: dict[str, torch.Tensor] = {}

    def loss(*, model_output: Any, data: Any, dp_group: Any) -> Any:
        kept.update({name: value.values() for name, value in model_output.items()})
        weights = torch.arange(1.0, len(kept["log_probs"]) + 1)
        return (kept["log_probs"] * weights).sum() + kept["entropy"].pow(2).sum(), {}

    value, _ = engine.forward_step(batch.clone(), loss, False)
    value.backward()
    return engine, kept, {name: weight.grad for name, weight in engine.module.named_parameters()}


LONG, OTHER = list(range(40)), list(range(3, 30))


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "prompts",
    [[LONG] * 5, [LONG, OTHER, LONG, OTHER, LONG, [9]], [LONG, LONG[:-1], LONG[:-1]], [[1], [2]], [[4]] * 3],
    ids=["one prompt", "prompts in turn", "one begins another", "none in common", "short prompts"],
)
def test_values_and_gradients_are_those_of_single_rows(tiny_model: Path, prompts: list[list[int]], seed: int) -> None:
    batch = micro_batch(prompts, seed=seed)
    (plain, values, gradients), (packed, shared_values, shared_gradients) = (
        step(tiny_model, batch, shares=shares) for shares in (False, True)
    )
    for name, value in values.items():
        assert (value - shared_values[name]).abs().max() <= 1e-5 * value.abs().max(), name
    for name, gradient in gradients.items():
        assert (gradient - shared_gradients[name]).abs().max() <= 1e-5 * gradient.abs().max() + 1e-6, name
    assert sum(packed.tokens) <= sum(plain.tokens)


def test_a_prompt_passes_once_for_all_its_rows(tiny_model: Path) -> None:
    batch = micro_batch([LONG] * 6, seed=0)
    engine, *_ = step(tiny_model, batch, shares=True)
    assert engine.tokens == [len(batch["input_ids"].values()) - 5 * len(LONG)]


def test_a_model_without_full_attention_computes_single_rows(
    tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]}
    batch = micro_batch([LONG] * 4, seed=1)
    (_, values, _), (_, shared_values, _) = (
        step(tiny_model, batch, shares=shares, **options) for shares in (False, True)
    )
    assert "shared_prompts" in caplog.text
    assert (values["log_probs"] - shared_values["log_probs"]).abs().max() < 1e-5


def test_a_model_that_ignores_masks_computes_single_rows(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = micro_batch([LONG] * 4, seed=2)
    engine = Engine(load(tiny_model), shares=True)
    forward = engine.module.forward

    def ignore(*args: Any, attention_mask: Any = None, **more: Any) -> Any:
        return forward(
            *args,
            attention_mask=None if attention_mask is None or attention_mask.dim() == 4 else attention_mask,
            **more,
        )

    monkeypatch.setattr(engine.module, "forward", ignore)
    inputs, _ = engine.prepare_model_inputs(batch)
    assert inputs["input_ids"].shape[0] == 4 and "has no effect" in caplog.text


@pytest.mark.parametrize(("response", "num_packs"), [(10, 1), (4000, 8)])
def test_long_responses_are_not_packed_because_attention_costs_more(response: int, num_packs: int) -> None:
    rows = [[1] * 50 + [2] * response for _ in range(8)]
    batch = TensorDict({"input_ids": nested(rows), "response_mask": nested([[1] * response] * 8)}, batch_size=8)
    packs = shared_prompts.groups_of_prompts(batch, hidden_size=64)
    assert len(packs) == num_packs and sorted(row for pack in packs for row in pack) == list(range(8))
