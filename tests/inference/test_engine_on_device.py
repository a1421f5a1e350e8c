"""The engine on a pretended device: what it computes there, and how often it waits for it."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from reference_model import Stepped, prompt, serve_mixed
from test_decoder import FAMILIES, make_model

from tests.fixtures.pretended_device import Pretended, pretended_device
from verl_agentic.cpu.inference import decode_step, decoder, span, token_sampling
from verl_agentic.cpu.inference.request import Generation

READS = ("copy to the host", "item", "tolist", "size of", "mask as index")


@pytest.fixture(autouse=True)
def no_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrapped tensors have no inference mode, and decorators were made before the device was pretended."""
    monkeypatch.setattr(torch._C, "_InferenceMode", lambda mode: torch.no_grad())


def on_device(model: Any) -> Any:
    """Returns a copy of the model on the pretended device; tied weights stay tied."""
    moved = copy.deepcopy(model)
    made: dict[int, Any] = {}
    for module in moved.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                made.setdefault(id(parameter), torch.nn.Parameter(Pretended(parameter.detach()), requires_grad=False))
                module._parameters[name] = made[id(parameter)]
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else Pretended(buffer)
    return moved


def serve_and_update(model: Any, tokenizer: Any, weights: dict[str, torch.Tensor]) -> list[Generation]:
    """Serves a mixed batch, and again after an update by weights of the CPU."""
    stepped = Stepped(model, tokenizer, prefill_tokens=40, max_running=12, max_cached_tokens=2_000)
    before = serve_mixed(stepped, seed=0)
    stepped.scheduler.forget()
    stepped.scheduler._decoder.update(weights.items())
    outcome = stepped.submit(prompt(0, 30), max_tokens=10)
    stepped.finish()
    return [*before, outcome[0]]  # type: ignore[list-item]


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["qwen3 tied", "gpt_neox"])
def test_a_device_gets_the_tokens_and_log_probs_of_the_cpu(
    family: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # transformers makes no mask for "meta" tensors
    monkeypatch.setattr(decoder, "_make_checked_decoder", decoder.ModuleDecoder)
    model = make_model(FAMILIES[family][1]())
    weights = {name: 1.2 * tensor for name, tensor in copy.deepcopy(model).state_dict().items()}
    with pretended_device():
        got = serve_and_update(on_device(model), tokenizer, weights)
    expected = serve_and_update(model, tokenizer, weights)
    assert [one.token_ids for one in got] == [one.token_ids for one in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def count_waits(model: Any, tokenizer: Any, *, rows: int, params: dict[str, Any], steps: int = 5) -> Counter[str]:
    """Returns how often the host waits in steps of decoding, by kind."""
    with pretended_device() as waits:
        stepped = Stepped(on_device(model), tokenizer)
        for case in range(rows):
            stepped.submit(prompt(case, 12), max_tokens=20, **params)
        stepped.step(2)
        waits.clear()
        stepped.step(steps)
        kinds: Counter[str] = Counter()
        for place, count in waits.items():
            kinds[next((kind for kind in READS if place.startswith(kind)), "write")] += count
        return kinds


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.0, "stop": ("never",)},
    {"temperature": 0.8, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.2, "allowed_token_ids": tuple(range(200))},
]


@pytest.fixture(scope="module")
def grouped() -> Any:
    return make_model(FAMILIES["qwen3 tied"][1]())


@pytest.mark.sample(1)
@pytest.mark.parametrize("params", OPTIONS)
def test_a_step_reads_the_device_once_and_waits_as_often_for_many_rows(
    params: dict[str, Any], grouped: Any, tokenizer: Any
) -> None:
    few, many = (count_waits(grouped, tokenizer, rows=rows, params=params) for rows in (2, 17))
    assert few == many
    assert {kind: count for kind, count in few.items() if kind in READS} == {"copy to the host": 5}


def test_a_tensor_on_the_wrong_device_is_found(grouped: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")

    def misplaced(positions: Any, reach: int, shape: Any) -> Any:
        hidden = torch.arange(reach, device=cpu) > torch.zeros(positions.shape, device=cpu)[..., None]
        return torch.zeros(hidden.shape, device=cpu)[:, None]

    monkeypatch.setattr(span, "_make_mask", misplaced)
    with pytest.raises(RuntimeError, match="same device"):
        count_waits(grouped, tokenizer, rows=2, params={})


def test_a_read_for_each_row_is_found(grouped: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_rows(sampled: Any) -> Any:
        for row in range(sampled.shape[1]):
            assert float(sampled[0, row]) >= 0
        return token_sampling.read_sampled(sampled)

    monkeypatch.setattr(decode_step, "read_sampled", read_rows)
    reads = count_waits(grouped, tokenizer, rows=9, params={"temperature": 1.0})
    assert reads["item"] == 5 * 9
