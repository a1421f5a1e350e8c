"""Log-probs of the most likely tokens beside what verl's engine gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.verl.extensions.methods.engine.top_log_probs import read_top_tokens

Tensor = torch.Tensor
PROMPTS, RESPONSES, VOCABULARY = [2, 1, 1], [3, 1, 2], 11
TEMPERATURE = torch.tensor([1.0, 0.5, 2.0])
LENGTHS = [p + r for p, r in zip(PROMPTS, RESPONSES, strict=True)]
LOGITS = [torch.randn(n, VOCABULARY, generator=torch.Generator().manual_seed(n)) for n in LENGTHS]


class Engine(FSDPEngineWithLMHead):
    """verl's engine as far as it makes outputs of logits, on one rank."""

    def __init__(self) -> None:
        self.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
        self.compute_entropy_from_logits = entropy_from_logits
        self.ulysses_sequence_parallel_size, self.pad_to_length, self.use_ulysses_sp = 1, None, False


def nested(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def outputs(*, remove_padding: bool, count: int, **columns: Tensor) -> tuple[dict[str, Any], Tensor]:
    """Returns what verl's engine makes of a model's output, padded or packed, and the logits."""
    ids = [torch.arange(n) for n in LENGTHS]
    rows = {"input_ids": nested(ids), "responses": nested([row[-r:] for row, r in zip(ids, RESPONSES, strict=True)])}
    batch = TensorDict({**rows, **columns}, batch_size=len(ids))
    tu.assign_non_tensor(batch, use_fused_kernels=False, use_remove_padding=remove_padding, calculate_top_tokens=count)
    args: dict[str, Any] = {"input_ids_rmpad_rolled": rows["input_ids"].values().roll(-1), "pad_size": 0}
    if remove_padding:
        padding = torch.full((2, VOCABULARY), float("nan"))  # verl may pad a packed row
        logits = torch.cat([*LOGITS, padding][: len(LOGITS) + (count > 0)]).unsqueeze(0)
        temperatures = TEMPERATURE.repeat_interleave(torch.tensor(LENGTHS))
        args["temperature_rmpad"] = temperatures
        if count:
            rolled = torch.cat([args["input_ids_rmpad_rolled"], torch.zeros(2, dtype=torch.int64)])
            args = {"temperature_rmpad": torch.cat([temperatures, torch.ones(2)]), "pad_size": 2}
            args["input_ids_rmpad_rolled"] = rolled
    else:
        logits = torch.nn.utils.rnn.pad_sequence(LOGITS, batch_first=True, padding_value=float("nan"))
        args["temperature"] = TEMPERATURE
    logits = logits.clone().requires_grad_()
    return cast("Any", Engine()).prepare_model_outputs(SimpleNamespace(logits=logits), args, batch, None), logits


def expected() -> list[Tensor]:
    """Returns the log-probs of the vocabulary at every place of the responses."""
    places = zip(LOGITS, TEMPERATURE, RESPONSES, strict=True)
    return [(row[-r - 1 : -1] / t).log_softmax(dim=-1) for row, t, r in places]


@pytest.mark.parametrize("remove_padding", [False, True])
def test_the_first_pass_chooses_and_the_next_ones_give_log_probs_with_gradient(remove_padding: bool) -> None:
    first, _ = outputs(remove_padding=remove_padding, count=3)
    assert "top_log_probs" not in first
    for ids, row in zip(first["top_ids"].unbind(), expected(), strict=True):
        assert torch.equal(ids.long(), row.topk(3, dim=-1).indices)
    others = nested([ids.flip(-1) for ids in first["top_ids"].unbind()])  # those that a batch has, in its order
    second, logits = outputs(remove_padding=remove_padding, count=3, top_ids=others)
    assert "top_ids" not in second
    for got, ids, row in zip(second["top_log_probs"].unbind(), others.unbind(), expected(), strict=True):
        torch.testing.assert_close(got, row.gather(-1, ids.long()))
    (found,) = torch.autograd.grad(second["top_log_probs"].values().sum(), logits)
    number_of_places = int((found.nan_to_num() != 0).any(dim=-1).sum())
    assert number_of_places == sum(RESPONSES)


@pytest.mark.parametrize("remove_padding", [False, True])
def test_verls_outputs_stay_and_there_are_no_others_unless_asked(remove_padding: bool) -> None:
    plain, _ = outputs(remove_padding=remove_padding, count=0)
    asked, _ = outputs(remove_padding=remove_padding, count=3)
    assert set(asked) - set(plain) == {"top_ids"}
    assert torch.equal(plain["log_probs"].values(), asked["log_probs"].values())


def test_there_are_no_more_tokens_than_the_vocabulary_has() -> None:
    first, _ = outputs(remove_padding=False, count=100)
    assert first["top_ids"].shape[-1] == VOCABULARY
    second, _ = outputs(remove_padding=False, count=100, top_ids=first["top_ids"])
    torch.testing.assert_close(second["top_log_probs"].values().exp().sum(-1), torch.ones(sum(RESPONSES)))


def test_half_precision_logits_are_summed_in_float32() -> None:
    rows = {"input_ids": torch.tensor([1, 2]), "responses": torch.tensor([2]), "top_ids": torch.tensor([[0]])}
    batch = TensorDict({name: nested([row]) for name, row in rows.items()}, batch_size=1)
    tu.assign_non_tensor(batch, use_remove_padding=False)
    logits = torch.full((1, 2, 4096), 7.0, dtype=torch.bfloat16)
    top = read_top_tokens(SimpleNamespace(logits=logits), {"temperature": torch.ones(1)}, batch, count=1)
    torch.testing.assert_close(top["top_log_probs"].values(), -torch.tensor([[4096.0]]).log())
