"""Critics that classify returns: what verl's engines make of their logits, and the loss."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPCriticConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import value_loss

from verl_agentic.base.errors import ConfigError
from verl_agentic.methods.losses.hl_gauss import bin_edges, decode_values, hl_gauss_loss
from verl_agentic.verl import guard
from verl_agentic.verl.extensions.methods.engine import categorical_critic
from verl_agentic.verl.extensions.methods.engine.categorical_critic import categorical_value_loss, edges_of
from verl_agentic.verl.extensions.methods.engine.critic_config import VALUE_BINS

BINS = {"low": 0.0, "high": 1.0, "bins": 5}
EDGES = bin_edges(0.0, 1.0, 5)
PROMPTS, RESPONSES = [2, 1], [3, 1]
LENGTHS = [5, 2]


def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def micro_batch(*, remove_padding: bool = False) -> TensorDict:
    columns = {
        "input_ids": jagged([torch.arange(n) for n in LENGTHS]),
        "prompts": jagged([torch.arange(n) for n in PROMPTS]),
        "responses": jagged([torch.arange(n) for n in RESPONSES]),
        "response_mask": jagged([torch.tensor([1, 0, 1]), torch.tensor([1])]),
        "returns": jagged([torch.tensor([0.3, math.nan, 2.0]), torch.tensor([-1.0])]),
        "values": jagged([torch.zeros(3), torch.zeros(1)]),
    }
    numbers = {"dp_size": 2, "batch_num_tokens": 6, "global_batch_size": 2, "use_remove_padding": remove_padding}
    return tu.get_tensordict(columns, numbers)


def engine(bins: dict[str, Any] | None = BINS) -> Any:
    hf_config = SimpleNamespace(**({} if bins is None else {VALUE_BINS: bins}))
    return SimpleNamespace(
        module=torch.nn.Linear(1, 1),
        model_config=SimpleNamespace(hf_config=hf_config),
        _gather_and_unpad_packed=lambda tensor, pad_size: tensor[:-pad_size] if pad_size else tensor,
    )


def outputs(logits: torch.Tensor, *, remove_padding: bool, has_loss: bool = True, bins: Any = BINS) -> dict[str, Any]:
    return FSDPEngineWithValueHead.prepare_model_outputs(
        engine(bins),
        SimpleNamespace(logits=logits),
        {"pad_size": 1 if remove_padding else 0},
        micro_batch(remove_padding=remove_padding),
        (lambda: None) if has_loss else None,
    )


@pytest.mark.parametrize("remove_padding", [False, True])
def test_values_are_the_means_of_the_bins_and_a_loss_gets_the_logits(remove_padding: bool) -> None:
    logits_BTN = torch.randn(2, 5, 5)
    # Packed rows lie behind each other, and verl may append a pad.
    packed = torch.cat([logits_BTN[0], logits_BTN[1, :2], torch.zeros(1, 5)]).unsqueeze(0)
    given = outputs(packed if remove_padding else logits_BTN, remove_padding=remove_padding)
    expected = decode_values(logits_BTN, torch.ones(2, 5, dtype=torch.bool), EDGES)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(given["values"][row], expected[row, :length])
        torch.testing.assert_close(given["value_logits"][row], logits_BTN[row, :length])
    without = outputs(packed if remove_padding else logits_BTN, remove_padding=remove_padding, has_loss=False)
    assert set(without) == {"values"}, "the logits are not sent to the trainer"


def test_a_critic_without_bins_is_verls() -> None:
    given = outputs(torch.arange(10.0).reshape(2, 5, 1), remove_padding=False, bins=None)
    assert set(given) == {"values"} and given["values"].values().tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_the_loss_is_the_cross_entropy_of_sampled_tokens() -> None:
    rows = [torch.randn(n, 5) for n in LENGTHS]
    model_output = {"value_logits": jagged(rows), "values": jagged([torch.randn(n) for n in LENGTHS])}
    config = SimpleNamespace(loss_agg_mode="token-mean", loss_scale_factor=None)
    loss, metrics = categorical_value_loss(model_output, micro_batch(), config=config, edges=EDGES)
    # The place before a token tells its value: 1 and 3 of the first row, 0 of the second.
    logits = torch.stack([rows[0][1], rows[0][3], rows[1][0]])
    returns = torch.tensor([0.3, 2.0, -1.0])
    each = hl_gauss_loss(logits.unsqueeze(0), returns.unsqueeze(0), torch.ones(1, 3, dtype=torch.bool), EDGES)
    # Of 6 tokens in the mini-batch, on 2 ranks.
    torch.testing.assert_close(loss, each.sum() / 6 * 2)
    assert metrics["critic/returns_outside_bins"] == pytest.approx(2 / 3)
    values = model_output["values"]
    assert metrics["critic/vpred_mean"] == pytest.approx(float((values[0][1] + values[0][3] + values[1][0]) / 3))


def test_a_worker_of_a_critic_with_bins_computes_it_in_the_place_of_verls() -> None:
    verls, critic, actor = partial(value_loss, config="config"), FSDPEngineWithValueHead, FSDPEngineWithLMHead

    def loss_of(kind: Any, bins: Any) -> Any:
        worker: Any = TrainingWorker.__new__(TrainingWorker)
        worker.engine = kind.__new__(kind)
        worker.engine.model_config = engine(bins).model_config
        worker.set_loss_fn(verls)
        return worker.loss_fn

    ours = loss_of(critic, BINS)
    assert ours.func is categorical_value_loss and ours.keywords["config"] == "config"
    assert loss_of(critic, None) is loss_of(actor, BINS) is verls


def test_the_model_gets_an_output_per_bin() -> None:
    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        head = torch.nn.Module()
        if local_path == "trl":
            head.v_head = torch.nn.Linear(1, 1)
        return head

    load_with_bins = partial(categorical_critic._load_with_bins, load)
    hf_config = SimpleNamespace(num_labels=1, **{VALUE_BINS: BINS})
    keywords = {"torch_dtype": None, "model_config": hf_config, "trust_remote_code": False}
    load_with_bins(local_path="model", **keywords)
    assert hf_config.num_labels == 5
    with pytest.raises(ConfigError, match="'trl'"):
        load_with_bins(local_path="trl", **keywords)


def config(**section: Any) -> Any:
    model: Any = SimpleNamespace(hf_config=SimpleNamespace())
    keywords: dict[str, Any] = {"categorical": section} if section else {}
    return FSDPCriticConfig(strategy="fsdp2", ppo_micro_batch_size_per_gpu=1, model=model, **keywords)


def test_workers_learn_of_the_bins_from_the_models_config() -> None:
    assert edges_of(config().model.hf_config) is None
    edges = edges_of(config(**BINS).model.hf_config)
    assert edges is not None and torch.equal(edges, EDGES)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"low": 0, "high": 1}, "'bins'"),
        ({**BINS, "sigma": 1}, "'sigma'"),
        ({**BINS, "bins": 1}, "critic.categorical.bins"),
        ({**BINS, "high": 0.0}, "critic.categorical.low"),
    ],
)
def test_bins_that_make_no_sense_are_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**section)


def test_a_run_with_bins_does_not_start_without_the_adapters() -> None:
    asked = {"extensions.methods.engine.critic_config", "extensions.methods.engine.categorical_critic"}
    assert asked <= set(guard.demanded(OmegaConf.create({"critic": {"categorical": dict(BINS)}})))
    assert not asked & set(guard.demanded(OmegaConf.create({"critic": {"enable": True}})))
