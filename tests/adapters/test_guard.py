"""A configuration that asks for something of ours does not run without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

import verl_agentic.config
from verl_agentic.base.errors import ConfigError, PluginError
from verl_agentic.plugin import ADAPTERS
from verl_agentic.verl import guard

_CPU = ["extensions.cpu.platform", "extensions.cpu.distributed", "extensions.cpu.cpu_engine"]


def _config(**keys: Any) -> DictConfig:
    config = OmegaConf.create(
        {
            "trainer": {"device": "cuda", "v1": {"sampler": {"sampler_kwargs": None}}},
            "algorithm": {"adv_estimator": "gae"},
            "actor_rollout_ref": {"rollout": {"name": "???", "agent": {"default_agent_loop": "tool_agent"}}},
        }
    )
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    OmegaConf.set_struct(config, True)
    return config


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """verl's module with `auto_set_device`, which here writes down what it is called with."""
    from verl.utils import device

    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    seen: list[Any] = []
    monkeypatch.setattr(device, "auto_set_device", seen.append)
    monkeypatch.setattr(device, "seen", seen, raising=False)
    return device


@pytest.mark.parametrize(
    ("keys", "platform", "expected"),
    [
        ({}, "", []),
        ({}, "nvidia", []),
        ({"actor_rollout_ref__rollout__name": "agentic"}, "", ["extensions.server.register"]),
        ({"actor_rollout_ref__rollout__name": "vllm"}, "", []),
        (
            {"actor_rollout_ref__rollout__agent__default_agent_loop": "env_agent"},
            "",
            ["rollout.agent_loop", "trainer.advantages"],
        ),
        (
            {"actor_rollout_ref__rollout__custom__agentic__env": "python_math"},
            "",
            ["rollout.agent_loop", "trainer.advantages"],
        ),
        ({"actor_rollout_ref__rollout__custom__other": 1}, "", []),
        ({"algorithm__adv_estimator": "safe_grpo"}, "", ["trainer.advantages"]),
        ({"algorithm__credit__clip": 5}, "", ["trainer.advantages"]),
        ({"trainer__v1__trainer_mode": "agentic_sync"}, "", ["trainer.advantages", "trainer.trainers"]),
        (
            {"actor_rollout_ref__actor__policy_loss__loss_mode": "masked_ppo"},
            "",
            ["engine.loss_config", "engine.loss_functions"],
        ),
        ({"actor_rollout_ref__actor__policy_loss__loss_mode": "gspo"}, "", []),
        (
            {"actor_rollout_ref__actor__policy_loss__loss_mode": "verl_agentic.methods.policy_losses.rover:rover"},
            "",
            ["engine.loss_config", "engine.loss_functions", "extensions.methods.engine.mean_log_prob"],
        ),
        ({"algorithm__adv_estimator": "my_credit.py:mine"}, "", ["trainer.advantages"]),
        (
            {"actor_rollout_ref__actor__policy_loss__per_session": True, "trainer__v1__trainer_mode": "agentic_sync"},
            "",
            ["engine.loss_config", "engine.loss_functions", "trainer.advantages", "trainer.trainers"],
        ),
        ({"data__curriculum__name": "learnability"}, "", ["trainer.prompt_order"]),
        (
            {"actor_rollout_ref__rollout__checkpoint_engine__backend": "object_store"},
            "",
            ["extensions.server.checkpoint_engine"],
        ),
        ({"actor_rollout_ref__rollout__checkpoint_engine__backend": "nccl"}, "", []),
        ({"algorithm__adv_estimator": "grpo_shuffled"}, "", ["extensions.methods.trainer.shuffled_rewards"]),
        ({"trainer__v1__sampler__sampler_kwargs": {"poll_interval_s": 0.1}}, "", ["replay_buffer.episode_buffer"]),
        ({"trainer__v1__sampler__sampler_kwargs": {"other": 0.1}}, "", []),
        (
            {"reward__reward_manager__name": "rubric"},
            "",
            [
                "replay_buffer.episode_buffer",
                "trainer.schedules",
                "reward.rubric_manager",
                "reward.group_rewards",
                "reward.verl_scores",
            ],
        ),
        ({}, " CPU ", _CPU),
    ],
)
def test_a_configuration_demands_the_adapters_behind_its_keys(
    keys: dict[str, Any], platform: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", platform)
    assert sorted(guard.demanded(_config(**keys))) == sorted(expected)
    assert set(expected) <= {adapter.module for adapter in ADAPTERS}


def test_a_configuration_without_our_sections_demands_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    assert guard.demanded(OmegaConf.create({"trainer": {"device": "cuda"}, "model": {"path": "x"}})) == []


def test_adapters_are_loaded_before_verl_looks_at_the_device(device: Any) -> None:
    loaded: list[Any] = []

    def load(names: list[str]) -> None:
        assert not device.seen
        loaded.append(names)

    guard.install_check(load)
    config = _config(algorithm__adv_estimator="grpo_shuffled")
    device.auto_set_device(config)
    assert loaded == [["extensions.methods.trainer.shuffled_rewards"]]
    assert device.seen == [config]


def test_a_failed_adapter_stops_the_run(device: Any) -> None:
    def load(names: list[str]) -> None:
        raise PluginError(f"no {names}")

    guard.install_check(load)
    with pytest.raises(PluginError, match=r"rollout\.agent_loop"):
        device.auto_set_device(_config(actor_rollout_ref__rollout__agent__default_agent_loop="env_agent"))
    assert not device.seen


def test_device_and_platform_must_both_be_the_cpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.install_check(lambda names: None)
    with pytest.raises(ConfigError, match=r"trainer\.device"):
        device.auto_set_device(_config(trainer__device="cpu"))
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    with pytest.raises(ConfigError, match="VERL_PLATFORM"):
        device.auto_set_device(_config())
    assert not device.seen
    device.auto_set_device(_config(trainer__device="cpu"))
    assert len(device.seen) == 1


def test_the_interpolation_of_a_recipe_resolves_only_with_the_plugin() -> None:
    recipe = OmegaConf.create({"required": "${verl_agentic:plugin}"})
    failures = ["the cause"]

    def check() -> None:
        if failures:
            raise PluginError(failures[0])

    was = OmegaConf.has_resolver(guard.RESOLVER)
    try:
        guard.install_resolver(check)
        with pytest.raises(InterpolationResolutionError, match="PluginError"):
            _ = recipe.required
        failures.clear()
        assert recipe.required == "plugin"
    finally:
        OmegaConf.clear_resolver(guard.RESOLVER)
        if was:
            from verl_agentic import plugin

            guard.install_resolver(plugin.check)


def test_guidance_needs_a_trainer_that_knows_who_was_guided(device: Any) -> None:
    guard.install_check(lambda names: None)
    with pytest.raises(ConfigError, match=r"agentic\.guidance"):
        device.auto_set_device(_config(actor_rollout_ref__rollout__custom__agentic__guidance=True))


@pytest.mark.parametrize(("name", "instead"), [("vtrace", "vapo_gae"), ("retrace", "turn_gae")])
def test_estimators_off_the_policy_need_the_log_probs_of_the_rollout(name: str, instead: str, device: Any) -> None:
    guard.install_check(lambda names: None)
    keys = {"algorithm__adv_estimator": name, "trainer__v1__trainer_mode": "agentic_sync", "critic__enable": True}
    with pytest.raises(ConfigError, match=f"{name}.*calculate_log_probs.*true.*{instead}"):
        device.auto_set_device(_config(**keys))
    device.auto_set_device(_config(**keys, actor_rollout_ref__rollout__calculate_log_probs=True))
    assert len(device.seen) == 1


@pytest.mark.parametrize("name", ["plugin", "cpu", "cpu_sft", "one_gpu", "one_gpu_sft", "one_gpu_vllm", "long_horizon"])
def test_every_shared_configuration_requires_the_plugin(name: str) -> None:
    folder = Path(str(verl_agentic.config.__file__)).parent / "agentic"

    def requires_plugin(name: str) -> bool:
        text = (folder / f"{name}.yaml").read_text()
        included = (OmegaConf.create(text) or {}).get("defaults") or []
        return f"${{{guard.RESOLVER}:plugin}}" in text or any(
            requires_plugin(one) for one in included if one != "_self_"
        )

    assert requires_plugin(name)


@pytest.mark.parametrize(
    ("section", "adapter"),
    [
        ("length_lr__reference_tokens", "extensions.methods.engine.learning_rate"),
        ("linear_lr__min_ratio", "extensions.methods.engine.learning_rate"),
        ("implicit_reward__model_path", "extensions.methods.engine.reference_model"),
        ("prompt_information__every", "trainer.trainers"),
        ("self_teacher__tau", "extensions.methods.engine.ema_teacher"),
    ],
)
def test_what_our_trainers_do_is_refused_under_one_of_the_user(section: str, adapter: str, device: Any) -> None:
    guard.install_check(lambda names: None)
    key = f"algorithm__{section}"
    assert adapter in guard.demanded(_config(**{key: 100, "trainer__v1__trainer_mode": "agentic_sync"}))
    message = rf"agentic.{section.split('__')[0]} needs a trainer of ours, got .*'mine'"
    with pytest.raises(ConfigError, match=message):
        device.auto_set_device(_config(**{key: 100, "trainer__v1__trainer_mode": "mine"}))


def test_the_root_is_moved_and_choices_are_logged_before_adapters_are_chosen(
    device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loaded: list[str] = []
    guard.install_check(loaded.extend)
    config = _config(agentic__guidance=True, agentic__credit__clip="???", trainer__v1__trainer_mode="sync")
    with caplog.at_level("INFO"):
        device.auto_set_device(config)
    chosen = "verl_agentic chose trainer.v1.trainer_mode=agentic_sync (agentic.guidance)"
    assert [record.getMessage() for record in caplog.records] == [chosen]
    assert config.trainer.v1.trainer_mode == "agentic_sync" and "trainer.trainers" in loaded
    assert "agentic" not in config and "credit" not in config.algorithm
    caplog.clear()
    with caplog.at_level("INFO"):
        device.auto_set_device(config)
    assert not caplog.records


@pytest.mark.parametrize("engine", ["megatron", "veomni"])
def test_rows_that_were_never_sampled_have_no_routes_to_replay(engine: str, device: Any) -> None:
    guard.install_check(lambda names: None)
    key = f"actor_rollout_ref__actor__{engine}__router_replay__mode"
    changes = {"algorithm__prompt_information__every": 5, "trainer__v1__trainer_mode": "agentic_sync"}
    device.auto_set_device(_config(**{key: "R2"}, **changes))
    with pytest.raises(
        ConfigError, match=rf"agentic.prompt_information computes rows .*{engine}.router_replay.mode=R3"
    ):
        device.auto_set_device(_config(**{key: "R3"}, **changes))


def test_importance_weights_of_truncated_samples_are_warned_of(device: Any, caplog: pytest.LogCaptureFixture) -> None:
    guard.install_check(lambda names: None)
    device.auto_set_device(_config(actor_rollout_ref__rollout__top_p=0.9))
    assert not caplog.records
    device.auto_set_device(
        _config(actor_rollout_ref__rollout__top_p=0.9, algorithm__rollout_correction__rollout_is="token")
    )
    assert "top_p=0.9" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"actor_rollout_ref__actor__use_kl_loss": False}, "use_kl_loss"),
    ],
)
def test_implicit_rewards_that_cannot_work_are_refused_before_ray(
    changes: dict[str, Any], message: str | None, device: Any
) -> None:
    keys = {
        "algorithm__implicit_reward__model_path": "phi",
        "actor_rollout_ref__actor__use_kl_loss": True,
        "actor_rollout_ref__model__lora_rank": 0,
        "trainer__v1__trainer_mode": "agentic_sync",
    }
    config = _config(**{**keys, **changes})
    before = OmegaConf.to_yaml(config)
    guard.install_check(lambda names: None)
    if message is None:
        device.auto_set_device(config)
        assert device.seen == [config] and OmegaConf.to_yaml(config) == before
    else:
        with pytest.raises(ConfigError, match=message):
            device.auto_set_device(config)
