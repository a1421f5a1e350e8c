"""Rows of one prompt in a pack have the log-probs, entropies and gradients of single rows, on one rank or several."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from patience import PATIENCE_S
from tensordict import TensorDict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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


def micro_batch(prompts: list[list[int]], *, seed: int, remove_padding: bool = False) -> TensorDict:
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
        calculate_entropy=True, use_remove_padding=remove_padding,
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


def step(
    folder: Path,
    batch: TensorDict,
    *,
    shares: bool,
    recomputes: bool = False,
    autocast: torch.dtype = torch.float32,
    **options: Any,
) -> tuple[Engine, Any, Any]:
    engine = Engine(load(folder, **options), shares=shares)
    engine._autocast_dtype = autocast
    if recomputes:
        engine.module.gradient_checkpointing_enable({"use_reentrant": False})
        engine.module.train()
    return engine, *take_step(engine, batch)


def demonstrations(batch: TensorDict) -> TensorDict:
    """Returns the rows as those of SFT: the mask of the loss has their length."""
    rows, masks = batch["input_ids"].unbind(), batch["response_mask"].unbind()
    whole = [[0] * (len(row) - len(mask)) + mask.tolist() for row, mask in zip(rows, masks, strict=True)]
    return batch.exclude("response_mask").update({"loss_mask": nested(whole)})


def take_step(engine: Engine, batch: TensorDict) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns outputs and gradients."""
    kept: dict[str, torch.Tensor] = {}

    def loss(*, model_output: Any, data: Any, dp_group: Any) -> Any:
        kept.update({name: value.values() for name, value in model_output.items()})
        weights = torch.arange(1.0, len(kept["log_probs"]) + 1)
        return (kept["log_probs"] * weights).sum() + kept["entropy"].pow(2).sum(), {}

    value, _ = engine.forward_step(batch.clone(), loss, False)
    value.backward()
    detached = {name: value.detach() for name, value in kept.items()}
    return detached, {name: weight.grad for name, weight in engine.module.named_parameters()}


LONG, OTHER = list(range(40)), list(range(3, 30))


@pytest.mark.sample(2)
@pytest.mark.parametrize("remove_padding", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "prompts",
    [[LONG] * 5, [LONG, OTHER, LONG, OTHER, LONG, [9]], [LONG, LONG[:-1], LONG[:-1]], [[1], [2]], [[4]] * 3],
    ids=["one prompt", "prompts in turn", "one begins another", "none in common", "short prompts"],
)
def test_values_and_gradients_are_those_of_single_rows(
    tiny_model: Path, prompts: list[list[int]], seed: int, remove_padding: bool
) -> None:
    plain_batch, batch = (micro_batch(prompts, seed=seed, remove_padding=choice) for choice in (False, remove_padding))
    _, values, gradients = step(tiny_model, plain_batch, shares=False)
    packed, shared_values, shared_gradients = step(tiny_model, batch, shares=True)
    for name, value in values.items():
        assert (value - shared_values[name]).abs().max() <= 1e-5 * value.abs().max(), name
    for name, gradient in gradients.items():
        assert (gradient - shared_gradients[name]).abs().max() <= 1e-5 * gradient.abs().max() + 1e-6, name
    different = {tuple(prompt) for prompt in prompts}
    saved = sum(map(len, prompts)) - sum(map(len, different))
    assert packed.tokens == [len(batch["input_ids"].values()) - saved]  # one pass, each prompt once


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("prompts", "num_shared"),
    [([[*LONG, 90], [*LONG, 91, 92], [*LONG, 93]], 40), ([LONG, OTHER], 0), ([LONG[:5], [*LONG[:6], 70]], 5)],
    ids=["system message", "none in common", "one begins another"],
)
def test_demonstrations_share_what_all_of_them_begin_with(
    tiny_model: Path, prompts: list[list[int]], num_shared: int, seed: int
) -> None:
    batch = demonstrations(micro_batch(prompts, seed=seed))
    _, values, gradients = step(tiny_model, batch, shares=False)
    packed, shared_values, shared_gradients = step(tiny_model, batch, shares=True)
    assert (values["log_probs"] - shared_values["log_probs"]).abs().max() <= 1e-5 * values["log_probs"].abs().max()
    for name, gradient in gradients.items():
        assert (gradient - shared_gradients[name]).abs().max() <= 1e-5 * gradient.abs().max() + 1e-6, name
    assert packed.tokens == [len(batch["input_ids"].values()) - (len(prompts) - 1) * num_shared]


@pytest.mark.parametrize("seed", range(2))
def test_in_bfloat16_packs_are_as_near_to_float32_as_single_rows(tiny_model: Path, seed: int) -> None:
    batch, errors = micro_batch([LONG, OTHER] * 3, seed=seed), {}
    _, exact_values, exact_gradients = step(tiny_model, batch, shares=False)
    for shares in (False, True):
        _, values, gradients = step(tiny_model, batch, shares=shares, autocast=torch.bfloat16)
        pairs = [(values["log_probs"], exact_values["log_probs"])]
        pairs += [(gradients[name], exact) for name, exact in exact_gradients.items()]
        errors[shares] = torch.stack([(rounded - exact).norm() / exact.norm() for rounded, exact in pairs])
    assert 0 < errors[True][0] < 0.01 and errors[True].max() < 0.1
    assert errors[True].mean() < 1.2 * errors[False].mean()


def test_recomputed_layers_see_packs(tiny_model: Path) -> None:
    batch = micro_batch([LONG, OTHER] * 2, seed=0)
    *_, gradients = step(tiny_model, batch, shares=True)
    *_, recomputed = step(tiny_model, batch, shares=True, recomputes=True)
    assert all(torch.equal(gradients[name], recomputed[name]) for name in gradients)


def test_no_mask_is_larger_than_a_response_and_what_it_sees() -> None:
    pack = shared_prompts.Pack(0, 8192, (256,) * 16, torch.device("cpu"))
    assert pack._mask(torch.bfloat16).numel() == 256 * (8192 + 256)
    assert pack._mask(torch.bfloat16) is pack._mask(torch.bfloat16)  # of all layers


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


def test_a_model_that_ignores_packs_computes_single_rows(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = micro_batch([LONG] * 4, seed=2)
    engine = Engine(load(tiny_model), shares=True)
    forward = engine.module.forward
    monkeypatch.setattr(engine.module, "forward", lambda *args, shared_prompts=None, **more: forward(*args, **more))
    inputs, _ = engine.prepare_model_inputs(batch)
    assert inputs["input_ids"].shape[0] == 4 and "has no effect" in caplog.text


def test_another_attention_computes_single_rows(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(load(tiny_model, attn_implementation="eager"), shares=True)
    inputs, _ = engine.prepare_model_inputs(micro_batch([LONG] * 4, seed=2))
    assert inputs["input_ids"].shape[0] == 4 and "attn_implementation=eager" in caplog.text


class RankedEngine(Engine):
    def get_data_parallel_size(self) -> int:
        return 2


def train_on_rank(rank: int, folder: Path) -> None:
    """Takes a step of FSDP2 with packs and one without, and compares them. The ranks have different prompts."""
    torch.set_num_threads(1)
    transformer_impl.get_device_id = transformer_impl.get_device_name = lambda: "cpu"
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    batch = micro_batch([[LONG] * 4, [LONG, OTHER, [9]]][rank], seed=rank, remove_padding=True)
    values, gradients = {}, {}
    for shares in (False, True):
        module = load(folder / "model")
        for layer in module.model.layers:
            fully_shard(layer, mesh=mesh)
        engine = RankedEngine(fully_shard(module, mesh=mesh), shares=shares)
        outputs, shards = take_step(engine, batch)
        values[shares] = torch.cat(list(outputs.values()))
        gradients[shares] = torch.cat([shard.full_tensor().flatten() for shard in shards.values()])
        assert (sum(engine.tokens) < len(batch["input_ids"].values())) == (shares and rank == 0)
    for name, results in {"values": values, "gradients": gradients}.items():
        difference = (results[True] - results[False]).abs().max() / results[False].abs().max()
        assert difference <= 1e-5, (name, difference)
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_several_ranks_pack_rows_of_different_prompts(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tiny_model)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(tmp_path), str(rank)], env=environment) for rank in range(2)
    ]
    try:
        assert [rank.wait(timeout=PATIENCE_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


if __name__ == "__main__":
    train_on_rank(int(sys.argv[2]), Path(sys.argv[1]))
