"""The mean log-prob over the vocabulary beside what verl's engine gives."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.verl.extensions.methods.engine.mean_log_prob import mean_log_prob

ROWS = [[5, 9, 2, 7, 4], [8, 3], [6, 1, 7]]
TEMPERATURE = torch.tensor([1.0, 0.5, 2.0])


class Engine(FSDPEngineWithLMHead):
    """verl's engine as far as it makes outputs of logits, on one rank."""

    def __init__(self) -> None:
        self.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
        self.compute_entropy_from_logits = entropy_from_logits
        self.ulysses_sequence_parallel_size, self.pad_to_length, self.use_ulysses_sp = 1, None, False


@pytest.fixture(scope="module")
def logits(tiny_model: Path) -> list[torch.Tensor]:
    """Returns the logits of a tiny model at every position of each row."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.no_grad():
        return [model(torch.tensor([row])).logits[0] for row in ROWS]


def micro_batch(**more: Any) -> TensorDict:
    rows = torch.nested.as_nested_tensor([torch.tensor(row) for row in ROWS], layout=torch.jagged)
    batch = TensorDict({"input_ids": rows}, batch_size=len(ROWS))
    tu.assign_non_tensor(batch, use_fused_kernels=False, calculate_entropy=True, **more)
    return batch


def outputs(logits: list[torch.Tensor], *, remove_padding: bool, **more: Any) -> dict[str, Any]:
    """Returns what verl's engine makes of a model's output, padded or packed."""
    batch = micro_batch(use_remove_padding=remove_padding, **more)
    args: dict[str, Any] = {"input_ids_rmpad_rolled": batch["input_ids"].values().roll(-1), "pad_size": 0}
    if remove_padding:
        lengths = torch.tensor([len(row) for row in ROWS])
        given = torch.cat(logits).unsqueeze(0)
        args["temperature_rmpad"] = TEMPERATURE.repeat_interleave(lengths)
    else:
        # What stands at padding must not matter.
        given = torch.nn.utils.rnn.pad_sequence(logits, batch_first=True, padding_value=float("nan"))
        args["temperature"] = TEMPERATURE
    output = SimpleNamespace(logits=given.clone().requires_grad_())
    return cast("Any", Engine()).prepare_model_outputs(output, args, batch, None)


@pytest.mark.parametrize("remove_padding", [False, True])
def test_it_is_the_mean_of_the_log_softmax_at_every_position(logits: list[torch.Tensor], remove_padding: bool) -> None:
    given = outputs(logits, remove_padding=remove_padding, calculate_mean_log_prob=True)
    for row, temperature, got in zip(logits, TEMPERATURE, given["mean_log_prob"].unbind(), strict=True):
        torch.testing.assert_close(got, torch.log_softmax(row / temperature, dim=-1).mean(dim=-1))
    assert torch.equal(given["mean_log_prob"].offsets(), given["log_probs"].offsets())
    assert not given["mean_log_prob"].requires_grad and given["log_probs"].requires_grad


@pytest.mark.parametrize("remove_padding", [False, True])
def test_nothing_else_changes_and_it_is_there_only_when_asked_for(
    logits: list[torch.Tensor], remove_padding: bool
) -> None:
    plain = outputs(logits, remove_padding=remove_padding)
    asked = outputs(logits, remove_padding=remove_padding, calculate_mean_log_prob=True)
    assert set(asked) - set(plain) == {"mean_log_prob"}
    for name in plain:
        assert torch.equal(plain[name].values(), asked[name].values()), name


def test_half_precision_logits_are_summed_in_float32() -> None:
    row = torch.full((2, 4096), 7.0, dtype=torch.bfloat16)
    batch = TensorDict(
        {"input_ids": torch.nested.as_nested_tensor([torch.tensor([1, 2])], layout=torch.jagged)}, batch_size=1
    )
    tu.assign_non_tensor(batch, use_remove_padding=False)
    args = {"temperature": torch.ones(1)}
    got = mean_log_prob(Engine(), SimpleNamespace(logits=row.unsqueeze(0)), args, batch)
    torch.testing.assert_close(got.values(), -torch.tensor([4096.0, 4096.0]).log())
