"""A target network beside the critic: what may ask for one, and what workers learn of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPCriticConfig, FSDPEngineConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl import guard
from verl_agentic.verl.extensions.methods.engine.critic_config import TARGET_TAU
from verl_agentic.verl.extensions.methods.engine.weight_copy import copy_of, trained_shards
from verl_agentic.verl.sections import all_sections


def config(*, strategy: str = "fsdp2", **more: Any) -> Any:
    model: Any = SimpleNamespace(hf_config=SimpleNamespace())
    fsdp = FSDPEngineConfig(strategy="fsdp2")
    return FSDPCriticConfig(strategy=strategy, ppo_micro_batch_size_per_gpu=1, model=model, fsdp=fsdp, **more)


def test_workers_learn_of_tau_from_the_engines_config() -> None:
    assert getattr(config(target={"tau": 0.1}).engine, TARGET_TAU) == 0.1
    assert not hasattr(config().engine, TARGET_TAU)


@pytest.mark.parametrize(
    ("section", "strategy", "message"),
    [
        ({}, "fsdp2", "'tau'"),
        ({"tau": 0.1, "every": 2}, "fsdp2", "'every'"),
        ({"tau": 0}, "fsdp2", "critic.target.tau"),
        ({"tau": 0.1}, "fsdp", "critic.strategy"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(section: dict[str, Any], strategy: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(target=section, strategy=strategy)


def run_config(estimator: str = "archer", **critic: Any) -> Any:
    return OmegaConf.create(
        {
            "critic": {"enable": True, **critic},
            "algorithm": {"adv_estimator": estimator},
            "trainer": {"v1": {"trainer_mode": "agentic_sync"}},
        }
    )


def test_a_run_with_a_target_does_not_start_without_the_adapters() -> None:
    asked = {"extensions.methods.engine.critic_config", "extensions.methods.engine.target_critic"}
    assert asked <= set(guard.demanded(run_config(target={"tau": 0.1})))
    assert not asked & set(guard.demanded(run_config()))


def test_a_target_that_nobody_would_use_is_refused() -> None:
    all_sections()["critic.target"].read_from(run_config(target={"tau": 0.1}))
    for estimator in ("turn_gae", "gae"):
        all_sections()["critic.target"].read_from(run_config(estimator))
        with pytest.raises(ConfigError, match=f"estimator '{estimator}' ignores critic.target"):
            all_sections()["critic.target"].read_from(run_config(estimator, target={"tau": 0.1}))


class Engine(FSDPEngineWithValueHead):
    """verl's engine without its start."""

    def __init__(self) -> None:
        self.module: Any = torch.nn.Linear(1, 1)
        self.passes = 0

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        self.passes += 1
        return {"model_output": {"values": self.module.weight.detach().clone()}}


def test_a_critic_without_a_target_computes_what_verls_does() -> None:
    engine = Engine()
    assert copy_of(engine) is None
    assert set(engine.infer_batch(tu.get_tensordict({}, {}))["model_output"]) == {"values"} and engine.passes == 1


def test_only_critics_have_it() -> None:
    for method in ("initialize", "infer_batch", "save_checkpoint", "load_checkpoint"):
        assert getattr(FSDPEngineWithLMHead, method) is not getattr(FSDPEngineWithValueHead, method)


def test_what_is_not_trained_is_not_copied() -> None:
    module = torch.nn.Linear(2, 1)
    module.bias.requires_grad_(False)
    (weight,) = trained_shards(module).values()
    weight.fill_(7.0)
    assert module.weight.tolist() == [[7.0, 7.0]], "it is the module's own memory"
