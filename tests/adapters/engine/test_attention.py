"""A run without the package for its attention stops before it starts, whichever of its models asks for it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig
from verl.utils import model as verl_model

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.verl.engine import attention, value_head

SDPA = {"attn_implementation": "sdpa"}


def run(*, actor: Any = SDPA, critic: Any = SDPA, strategy: str = "fsdp2", device: str = "cuda", **more: Any) -> Any:
    settings = {
        "trainer": {"device": device},
        "algorithm": {"adv_estimator": "gae"},
        "actor_rollout_ref": {"model": {"override_config": actor}, "actor": {"strategy": strategy}},
        "critic": {"enable": None, "model": {"override_config": critic}, "strategy": strategy},
    }
    return OmegaConf.merge(settings, more)


def sft(override: Any, *, device: str = "cuda") -> DictConfig:
    settings = {"trainer": {"device": device}, "model": {"override_config": override}, "engine": {"strategy": "fsdp"}}
    return OmegaConf.create(settings)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Pretends a GPU; returns the packages that are pretended to be installed."""
    packages: set[str] = set()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(attention, "is_installed", packages.__contains__)
    return packages


@pytest.mark.parametrize("override", [{}, {"attn_implementation": "flash_attention_2"}, {"max_position_embeddings": 9}])
@pytest.mark.parametrize(
    ("section", "make"),
    [
        ("actor_rollout_ref.model", lambda override: run(actor=override)),
        ("critic.model", lambda override: run(critic=override)),
        ("critic.model", lambda override: OmegaConf.merge(run(critic=override), {"critic": {"enable": True}})),
        ("model", sft),
    ],
)
def test_every_model_of_a_run_needs_the_package_of_its_attention(
    section: str, make: Any, override: dict[str, Any], gpu: set[str]
) -> None:
    with pytest.raises(ConfigError, match=rf"{section}\.override_config\.attn_implementation=sdpa"):
        attention.check_attention(make(override))
    gpu.add("flash_attn")
    attention.check_attention(make(override))


def test_each_kind_of_flash_attention_has_its_package_and_transformers_can_fetch_kernels(gpu: set[str]) -> None:
    gpu.add("flash_attn")
    config = run(actor={"attn_implementation": "flash_attention_3"})
    with pytest.raises(ConfigError, match="flash_attn_interface"):
        attention.check_attention(config)
    gpu.add("kernels")
    attention.check_attention(config)


def test_models_that_are_not_loaded_and_other_attentions_need_nothing(gpu: set[str]) -> None:
    attention.check_attention(run(critic={}, algorithm={"adv_estimator": "grpo"}))
    attention.check_attention(OmegaConf.merge(run(critic={}), {"critic": {"enable": False}}))
    attention.check_attention(run(actor={}, critic={}, strategy="megatron"))
    attention.check_attention(run(actor={"attn_implementation": None}))  # transformers chooses
    assert not gpu


def test_a_machine_without_the_gpu_of_the_run_is_no_judge_of_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(attention, "is_installed", lambda package: False)
    attention.check_attention(run(actor={}))
    assert len(list(attention.missing_attention(run(actor={}, critic={})))) == 2


def test_no_cpu_runs_flash_attention(gpu: set[str]) -> None:
    gpu.add("flash_attn")
    with pytest.raises(ConfigError, match="no CPU runs it"):
        attention.check_attention(sft({}, device="cpu"))


@pytest.mark.parametrize(("chosen", "is_here", "loads"), [("sdpa", True, True), ("sdpa", False, True),
                                                          ("flash_attention_2", False, False)])  # fmt: skip
def test_a_critic_loads_with_the_attention_of_its_section(
    chosen: str, is_here: bool, loads: bool, tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(value_head, "is_installed", lambda package: is_here)
    config = AutoConfig.from_pretrained(tiny_model, attn_implementation=chosen, num_labels=1)
    if not loads:
        with pytest.raises(DataError, match=r"(?i)flash"):
            verl_model.load_valuehead_model(str(tiny_model), torch.float32, config, False)
        return
    model = verl_model.load_valuehead_model(str(tiny_model), torch.float32, config, False)
    assert model.config._attn_implementation == "sdpa"
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 1)


def test_with_flash_attn_verls_own_function_loads_the_critic(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_head, "is_installed", lambda package: True)
    config = AutoConfig.from_pretrained(tiny_model, attn_implementation="flash_attention_2", num_labels=1)
    with pytest.raises(RuntimeError, match="trl"):  # verl's, where flash-attn cannot be imported
        verl_model.load_valuehead_model(str(tiny_model), torch.float32, config, False)
