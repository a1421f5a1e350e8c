"""Log-probs of trained tokens only equal those of verl's own pass over all logits, with all gradients."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead
from verl.workers.utils.losses import sft_loss
from verl.workers.utils.padding import no_padding_2_padding

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.engine.sampled_log_probs import trained_places

PROMPTS = [[5, 9, 2], [8], [6, 1]]
RESPONSES = [[7, 4, 3, 3], [3, 5, 6], [7, 11, 12, 13, 14]]
MASKS = [[1, 0, 1, 1], [0, 1, 1], [1, 1, 0, 0, 1]]


def nested(rows: list[list[int]]) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def padded(rows: list[list[int]], *, left: bool = False) -> torch.Tensor:
    side = "left" if left else "right"
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_side=side)


def micro_batch(*, masks: list[list[int]] = MASKS, is_nested: bool = True, **more: Any) -> TensorDict:
    whole = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    columns = {
        "input_ids": nested(whole),
        "position_ids": nested([list(range(len(row))) for row in whole]),
        "prompts": nested(PROMPTS) if is_nested else padded(PROMPTS, left=True),
        "responses": nested(RESPONSES) if is_nested else padded(RESPONSES),
        "response_mask": nested(masks) if is_nested else padded(masks),
    }
    if not is_nested:
        ones = [padded([[1] * len(row) for row in rows], left=i == 0) for i, rows in enumerate((PROMPTS, RESPONSES))]
        columns["attention_mask"] = torch.cat(ones, dim=1)
    batch = TensorDict(columns, batch_size=len(whole))
    given = {"temperature": 1.0, "use_fused_kernels": True, "calculate_entropy": True, "use_remove_padding": False}
    tu.assign_non_tensor(batch, **{**given, **more})
    return batch


class Engine(FSDPEngineWithLMHead):
    """verl's engine as far as it computes outputs, on one rank."""

    def __init__(self, folder: Path, backend: str, *, strategy: str = "fsdp2") -> None:
        self.engine_config = SimpleNamespace(
            entropy_checkpointing=False, entropy_from_logits_with_chunking=False, strategy=strategy
        )
        self.model_config = SimpleNamespace(use_fused_kernels=True, fused_kernel_options={"impl_backend": backend})
        self.compute_entropy_from_logits = entropy_from_logits
        self.ulysses_sequence_parallel_size, self.pad_to_length, self.use_ulysses_sp = 1, None, False
        self.module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def outputs(self, batch: TensorDict) -> dict[str, Any]:
        inputs, args = self.prepare_model_inputs(batch)
        return self.prepare_model_outputs(self.module(**inputs, use_cache=False), args, batch, None)


def of_verl(folder: Path, batch: TensorDict) -> tuple[Engine, dict[str, Any]]:
    engine = Engine(folder, "torch")
    batch = batch.clone()
    tu.assign_non_tensor_data(batch, "use_fused_kernels", False)
    return engine, engine.outputs(batch)


def of_ours(folder: Path, batch: TensorDict) -> tuple[Engine, dict[str, Any]]:
    engine = Engine(folder, "sampled")
    return engine, engine.outputs(batch)


@pytest.mark.sample(3)
@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("remove_padding", [True, False])
@pytest.mark.parametrize("temperature", [1.0, torch.tensor([1.0, 0.5, 2.0])])
@pytest.mark.parametrize("masks", [MASKS, [[0] * len(row) for row in MASKS]])
def test_outputs_and_gradients_of_trained_tokens_are_verls(
    tiny_model: Path, masks: list[list[int]], temperature: Any, remove_padding: bool, is_nested: bool
) -> None:
    batch = micro_batch(masks=masks, is_nested=is_nested, temperature=temperature, use_remove_padding=remove_padding)
    mask = padded(masks).bool()
    found = []
    for engine, outputs in (of_verl(tiny_model, batch), of_ours(tiny_model, batch)):
        values = [no_padding_2_padding(outputs[name], batch)[mask] for name in ("log_probs", "entropy")]
        loss = (values[0] * torch.arange(1.0, len(values[0]) + 1)).sum() + 0.3 * values[1].pow(2).sum()
        loss.backward()
        gradients = {name: weight.grad for name, weight in engine.module.named_parameters()}
        found.append((values, gradients))
    (expected, expected_gradients), (values, gradients) = found
    for one, other in zip(values, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert set(gradients) == set(expected_gradients)
    for name, gradient in gradients.items():
        expected_gradient = expected_gradients[name]
        assert (gradient - expected_gradient).abs().max() <= 1e-5 * expected_gradient.abs().max(), name


def add_adapters(model: Any) -> Any:
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))


def untie_head(model: Any) -> Any:
    model.lm_head = torch.nn.Linear(model.lm_head.in_features, model.lm_head.out_features, bias=False)
    return model


def freeze_head(model: Any) -> Any:
    model.lm_head.weight.requires_grad_(False)
    return model


def checkpoint_layers(model: Any) -> Any:
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", [add_adapters, untie_head, freeze_head, checkpoint_layers, torch.nn.Module.bfloat16])
def test_changed_models_have_the_gradients_of_verls_pass(tiny_model: Path, change: Any) -> None:
    batch, mask = micro_batch(use_remove_padding=True), padded(MASKS).bool()
    gradients = []
    for backend in ("torch", "sampled"):
        torch.manual_seed(0)
        engine = Engine(tiny_model, backend)
        engine.module = change(engine.module)
        outputs = engine.outputs(tu.assign_non_tensor(batch.clone(), use_fused_kernels=backend == "sampled"))
        torch.cat(
            [no_padding_2_padding(outputs[name], batch)[mask] for name in ("log_probs", "entropy")]
        ).sum().backward()
        gradients.append({name: w.grad for name, w in engine.module.named_parameters() if w.requires_grad})
    tolerance = 3e-2 if change is torch.nn.Module.bfloat16 else 1e-5
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        assert (gradients[1][name] - expected).abs().max() <= tolerance * expected.abs().max(), name


def test_mixed_precision_gives_the_log_probs_of_verls_pass(tiny_model: Path) -> None:
    batch, mask = micro_batch(use_remove_padding=True), padded(MASKS).bool()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [outputs["log_probs"] for _, outputs in (of_verl(tiny_model, batch), of_ours(tiny_model, batch))]
    expected, values = (no_padding_2_padding(each, batch)[mask].float() for each in found)
    assert torch.allclose(values, expected, atol=0.05)


def test_a_pass_that_failed_asks_nothing_of_the_next_one(tiny_model: Path) -> None:
    engine = Engine(tiny_model, "sampled")
    engine.prepare_model_inputs(micro_batch())
    batch = micro_batch(calculate_sum_pi_squared=True)
    (_, expected), outputs = of_verl(tiny_model, batch), engine.outputs(batch)
    assert torch.equal(outputs["log_probs"].values(), expected["log_probs"].values())


def test_the_loss_of_sft_is_verls(tiny_model: Path) -> None:
    batch = micro_batch()
    masks = [[0] * len(prompt) + mask for prompt, mask in zip(PROMPTS, MASKS, strict=True)]
    batch = batch.exclude("prompts", "responses", "response_mask")
    batch["loss_mask"] = nested(masks)
    tu.assign_non_tensor(batch, batch_num_tokens=9, dp_size=1)
    losses = [
        sft_loss(None, outputs, batch)[0] for _, outputs in (of_verl(tiny_model, batch), of_ours(tiny_model, batch))
    ]
    assert torch.allclose(losses[0], losses[1], atol=1e-6) and losses[0] > 1.0


def test_tokens_outside_the_mask_are_0_and_their_logits_are_not_computed(tiny_model: Path) -> None:
    batch = micro_batch()
    engine, outputs = of_ours(tiny_model, batch)
    values = no_padding_2_padding(outputs["log_probs"], batch)
    assert not values[~padded(MASKS).bool()].any()
    sizes: list[int] = []
    engine.module.register_forward_hook(lambda _, __, output: sizes.append(output.logits.numel()))
    engine.outputs(micro_batch())
    assert sizes == [2 * sum(map(sum, MASKS))]


@pytest.mark.parametrize("asked", ["calculate_sum_pi_squared", "calculate_mean_log_prob"])
def test_what_reads_all_logits_gets_them(tiny_model: Path, asked: str) -> None:
    batch = micro_batch(**{asked: True})
    (_, expected), (_, outputs) = of_verl(tiny_model, batch), of_ours(tiny_model, batch)
    assert set(outputs) == set(expected)
    for name, value in outputs.items():
        assert torch.equal(value.values(), expected[name].values())


def test_the_first_token_of_a_row_is_never_predicted() -> None:
    batch = TensorDict(
        {"input_ids": nested([[1, 2], [3, 4, 5]]), "loss_mask": nested([[1, 1], [1, 0, 1]])}, batch_size=2
    )
    rows, places = trained_places(batch)
    assert (rows.tolist(), places.tolist()) == ([0, 1], [0, 1])


def test_a_critic_reads_values(tiny_model: Path) -> None:
    engine = Engine(tiny_model, "sampled")
    engine.__class__ = type("Critic", (Engine, FSDPEngineWithValueHead), {
        "prepare_model_outputs": FSDPEngineWithValueHead.prepare_model_outputs
    })  # fmt: skip
    _, args = engine.prepare_model_inputs(micro_batch())
    assert not hasattr(engine.module.lm_head, "request") and set(args) == set(
        Engine(tiny_model, "torch").prepare_model_inputs(micro_batch(use_fused_kernels=False))[1]
    )


def cap_logits(model: Any) -> Any:
    forward = model.forward

    def capped(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits = torch.tanh(output.logits)
        return output

    model.forward = capped
    return model


def add_bias(model: Any) -> Any:
    model.lm_head = torch.nn.Linear(model.lm_head.in_features, model.lm_head.out_features)
    return model


def add_adapters_to_head(model: Any) -> Any:
    untie_head(model).config.tie_word_embeddings = False
    options = peft.LoraConfig(r=4, target_modules=["lm_head"], init_lora_weights=False)
    return peft.get_peft_model(model, options)


@pytest.mark.parametrize("change", [cap_logits, add_bias, add_adapters_to_head])
def test_a_model_whose_logits_are_not_its_output_layers_computes_all_of_them(
    tiny_model: Path, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = []
    for backend in ("torch", "sampled"):
        torch.manual_seed(0)
        engine = Engine(tiny_model, backend)
        engine.module = change(engine.module)
        for _ in range(2):
            outputs = engine.outputs(micro_batch(use_fused_kernels=backend == "sampled"))
        found.append(outputs["log_probs"].values())
    assert torch.equal(*found) and found[0].all()
    assert len(caplog.records) == 1


def test_another_strategy_is_refused(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="strategy=fsdp2"):
        Engine(tiny_model, "sampled", strategy="fsdp").prepare_model_inputs(micro_batch())
