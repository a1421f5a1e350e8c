"""Groups of similar length cost the least, and what an engine returns does not depend on them."""

from __future__ import annotations

import functools
import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.losses import ppo_loss

from verl_agentic.verl.extensions.cpu.cpu_engine import CpuEngineWithLMHead
from verl_agentic.verl.extensions.cpu.similar_lengths import groups_of_similar_length

# verl's decorator hides the class from type checkers.
VERL: Any = FSDPEngineWithLMHead


def cost(groups: list[list[int]], lengths: list[int], tokens_of_a_pass: int) -> int:
    return sum(len(group) * max(lengths[row] for row in group) + tokens_of_a_pass for group in groups)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_partition_of_the_rows_by_length_costs_less(seed: int) -> None:
    rng = random.Random(seed)
    lengths, tokens = [rng.randint(1, 40) for _ in range(rng.randint(1, 9))], rng.choice([0, 5, 50])
    groups = groups_of_similar_length(lengths, tokens_of_a_pass=tokens)
    assert sorted(itertools.chain(*groups)) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    cuts = itertools.chain.from_iterable(
        itertools.combinations(range(1, len(order)), count) for count in range(len(order))
    )
    least = min(
        cost([order[a:b] for a, b in itertools.pairwise([0, *cut, len(order)])], lengths, tokens) for cut in cuts
    )
    assert cost(groups, lengths, tokens) == least


def test_rows_of_one_length_stay_together() -> None:
    assert groups_of_similar_length([7] * 5) == [[0, 1, 2, 3, 4]]
    assert groups_of_similar_length([]) == []


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_impl, "get_device_id", lambda: "cpu")
    monkeypatch.setattr(transformer_impl, "get_device_name", lambda: "cpu")


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64)


class Engine(CpuEngineWithLMHead):
    """The engine as far as it takes steps, on one of several ranks."""

    def __init__(self, model: Any, ranks: int = 1) -> None:
        self.module, self.passes, self._ranks = model, 0, ranks
        self.engine_config = SimpleNamespace(entropy_checkpointing=False)
        self.model_config = SimpleNamespace(use_fused_kernels=False, fused_kernel_options={})
        self.pad_to_length = self.use_ulysses_sp = False
        self._autocast_dtype = torch.float32

    def get_data_parallel_size(self) -> int:
        return self._ranks

    def get_data_parallel_group(self) -> None:
        return None

    def prepare_model_inputs(self, micro_batch: Any) -> Any:
        self.passes += 1
        return VERL.prepare_model_inputs(self, micro_batch)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("rows", "agg_mode"), [(3, "seq-mean-token-sum-norm"), (9, "seq-mean-token-mean"), (20, "token-mean")]
)
def test_outputs_loss_metrics_and_gradients_are_those_of_one_pass(model: Any, rows: int, agg_mode: str) -> None:
    config = FSDPActorConfig(
        **{"strategy": "fsdp2", "rollout_n": 1, "use_dynamic_bsz": True, "loss_agg_mode": agg_mode},
        **{"use_kl_loss": True, "kl_loss_type": "k3+", "entropy_coeff": 0.1},
    )
    engine, data, loss = Engine(model), batch(rows), functools.partial(ppo_loss, config=config)
    found = step(engine, CpuEngineWithLMHead, data, loss)
    assert engine.passes > 1
    expected = step(engine, VERL, data, loss)
    assert found[0]["loss"] == pytest.approx(expected[0]["loss"], rel=1e-9)
    assert values(found[0]["metrics"]) == pytest.approx(values(expected[0]["metrics"]), rel=1e-9, abs=1e-12)
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(of_targets(found[0], name), of_targets(expected[0], name))
    torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=1e-12)


def test_a_pass_without_loss_gives_the_log_probs_in_the_order_of_the_rows(model: Any) -> None:
    engine, data = Engine(model), batch(9)
    with torch.no_grad():
        _, found = engine.forward_step(data, None, True)
        _, expected = VERL.forward_step(engine, data, None, True)
    assert found["loss"] == expected["loss"] and found["metrics"] == {}
    torch.testing.assert_close(of_targets(found, "log_probs"), of_targets(expected, "log_probs"))


@pytest.mark.parametrize(("ranks", "entries"), [(2, {}), (1, {"distillation_use_topk": True})])
def test_ranks_pass_equally_often_and_losses_of_logits_see_all_rows(
    ranks: int, entries: dict[str, Any], model: Any
) -> None:
    groups = Engine(model, ranks)._group_rows(batch(9, **entries))
    assert groups == [list(range(9))]


def step(engine: Any, kind: Any, data: Any, loss: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Returns output and gradients of a step of verl's engine, or of ours."""
    engine.module.zero_grad()
    live, output = kind.forward_step(engine, data, loss, False)
    live.backward()
    return output, {name: one.grad.clone() for name, one in engine.module.named_parameters()}


def of_targets(output: dict[str, Any], name: str) -> list[torch.Tensor]:
    """Returns an output by row; the last token of a row has no target, and verl takes any for it."""
    return [row[:-1] for row in output["model_output"][name].unbind()]


def values(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: one.aggregate() if hasattr(one, "aggregate") else one for name, one in metrics.items()}


def batch(rows: int, **entries: Any) -> TensorDict:
    """Returns rows of very different lengths."""
    rng, generator = random.Random(rows), torch.Generator().manual_seed(rows)
    sizes = [(rng.randint(2, 5), rng.choice([1, 2, 30])) for _ in range(rows - 2)] + [(3, 1), (2, 200)]

    def nested(make: Any) -> torch.Tensor:
        return torch.nested.as_nested_tensor([make(*size) for size in sizes], layout=torch.jagged)

    def of_response(make: Any) -> torch.Tensor:
        return nested(lambda _, size: make(size, generator=generator, dtype=torch.float64))

    ids = nested(lambda prompt, response: torch.randint(5, 60, (prompt + response,), generator=generator))
    log_probs = of_response(torch.rand)
    tensors: dict[str, Any] = {
        "input_ids": ids,
        "position_ids": nested(lambda prompt, response: torch.arange(prompt + response)),
        "prompts": nested(lambda prompt, _: torch.zeros(prompt)),  # the loss reads only their lengths
        "responses": nested(lambda _, response: torch.zeros(response)),
        "response_mask": nested(lambda _, size: torch.ones(size)),
        "advantages": of_response(torch.randn),
        "old_log_probs": log_probs - 5,
        "ref_log_prob": log_probs - 4,
    }
    constants = {"dp_size": 1, "batch_num_tokens": 1_000, "global_batch_size": rows, "temperature": 0.7}
    flags = {"use_remove_padding": False, "calculate_entropy": True}
    return tu.get_tensordict(tensors, {**constants, **flags, **entries})


@pytest.mark.sample(1)
@pytest.mark.parametrize("idle", [[], [0, 4], [8], list(range(9))], ids=["none", "two", "the longest", "all"])
@pytest.mark.parametrize("options", [{}, {"use_kl_loss": True, "kl_loss_type": "k3+"}, {"entropy_coeff": 0.1}])
def test_rows_without_advantage_change_no_gradient_and_pass_without_one(
    model: Any, monkeypatch: pytest.MonkeyPatch, idle: list[int], options: dict[str, Any]
) -> None:
    config = FSDPActorConfig(
        **{"strategy": "fsdp2", "rollout_n": 1, "use_dynamic_bsz": True, "loss_agg_mode": "token-mean", **options}
    )
    engine, data, loss = Engine(model), batch(9), functools.partial(ppo_loss, config=config)
    for row in idle:
        data["advantages"].unbind()[row].zero_()
    expected = step(engine, VERL, data, loss)
    trained: list[int] = []
    prepare = VERL.prepare_model_inputs

    def count(self: Any, micro_batch: Any) -> Any:
        trained.append(len(micro_batch) * torch.is_grad_enabled())
        return prepare(self, micro_batch)

    monkeypatch.setattr(Engine, "prepare_model_inputs", count)
    found = step(engine, CpuEngineWithLMHead, data, loss)
    assert sum(trained) == (9 if options else max(1, 9 - len(idle)))
    assert values(found[0]["metrics"]) == pytest.approx(values(expected[0]["metrics"]), rel=1e-9, abs=1e-12)
    assert set(found[1]) == set(expected[1])
    torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=1e-12)
