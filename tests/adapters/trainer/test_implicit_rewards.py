"""Implicit token rewards under our trainers: what is refused, and what an estimator gets of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from stored_rows import StoredRows, algorithm
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig
from verl.workers.utils import losses

from verl_agentic.base.errors import ConfigError, PluginError
from verl_agentic.verl.extensions.methods.trainer.implicit_rewards import (
    REFERENCE_PATH,
    put_reward_model_in_place_of_reference,
)
from verl_agentic.verl.trainer.trainers import CreditMixin

SECTION = {"model_path": "phi", "beta": 0.5, "outcome_coef": 2.0}


def to_config(name: str = "monte_carlo", **changes: Any) -> DictConfig:
    config = OmegaConf.create(
        {
            "algorithm": algorithm(adv_estimator=name, implicit_reward=SECTION),
            "actor_rollout_ref": {
                "rollout": {"n": 2, "calculate_log_probs": False, "custom": {"agentic": {"audit": "off"}}},
                "actor": {
                    "strategy": "fsdp2",
                    "policy_loss": {"loss_mode": "vanilla"},
                    "use_kl_loss": True,
                    "kl_loss_coef": 0.0,
                },
                "model": {"path": "policy", "lora_rank": 0},
            },
            "trainer": {"v1": {"trainer_mode": "agentic_sync"}, "critic_warmup": 0, "default_local_dir": "out"},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    return config


class Verl:
    """verl's trainer as far as advantages need it."""

    global_steps = 1

    def __init__(self, config: Any) -> None:
        self.config = config
        self.workers: Any = None

    def _setup(self) -> None:
        self.ref_policy_wg = self.workers

    _compute_advantage = PPOTrainer._compute_advantage


class Trainer(CreditMixin, Verl):
    mode = "sync"


def test_workers_are_told_the_path_of_the_reward_model() -> None:
    config = to_config()
    OmegaConf.set_struct(config, True)
    Trainer(config)
    assert config.actor_rollout_ref.reference_path == "phi" and config.actor_rollout_ref.model.path == "policy"
    plain = to_config(algorithm__implicit_reward=None)
    Trainer(plain)
    assert "reference_path" not in plain.actor_rollout_ref


_ACTOR = "actor_rollout_ref__actor"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({f"{_ACTOR}__use_kl_loss": False}, "use_kl_loss"),
        ({f"{_ACTOR}__kl_loss_coef": 0.001}, "kl_loss_coef"),
        ({f"{_ACTOR}__policy_loss__options": {"kl": "k3"}}, "options.kl"),
        ({f"{_ACTOR}__policy_loss__options": {"kl_coef": 0.1}}, "options.kl_coef"),
        ({"algorithm__use_kl_in_reward": True}, "use_kl_in_reward"),
        ({"actor_rollout_ref__model__lora_rank": 8}, "lora_rank"),
        ({"actor_rollout_ref__model__lora": {"rank": 4}}, "lora_rank"),
        ({"actor_rollout_ref__model__lora_adapter_path": "a"}, "lora_adapter_path"),
        *(({"algorithm__adv_estimator": name}, name) for name in ("gdpo", "remax", "safe_gdpo", "safe_remax")),
        *(({f"{_ACTOR}__policy_loss__loss_mode": name}, rf"got .*loss_mode='{name}'") for name in ("pacs", "sdpo")),
        ({"algorithm__implicit_reward__model_path": None}, "implicit_reward.model_path"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_played(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(to_config(**changes))


def test_a_loss_option_that_is_off_and_estimators_of_outcomes_are_allowed() -> None:
    for name in ("grpo", "safe_grpo", "rloo"):
        config = to_config(name, **{f"{_ACTOR}__policy_loss__options": {"kl": "none", "kl_coef": 0.0}})
        put_reward_model_in_place_of_reference(config)
        assert config.actor_rollout_ref[REFERENCE_PATH] == config.algorithm.implicit_reward.model_path


def played(queue: StoredRows, key: str, rewards: list[float], phi: list[float], **more: Any) -> None:
    old = torch.full((len(rewards),), -1.0)
    queue.put_row(key, rewards, old_log_probs=old, ref_log_prob=torch.tensor(phi), **more)


def advantages(queue: StoredRows, name: str, metrics: dict[str, Any]) -> dict[str, list[float]]:
    batch = Trainer(to_config(name))._compute_advantage(queue.meta(), metrics)
    return {key: queue.rows[key]["advantages"].tolist() for key in batch.keys}


def test_an_estimator_of_tokens_sees_their_rewards_and_weighted_outcomes(queue: StoredRows) -> None:
    played(queue, "u_0_0", [0.0, 0.0, 1.0], [-0.5, -9.0, -2.0], mask=[1, 0, 1], info={"acc": 1.0})
    played(queue, "u_1_0", [0.0, 0.0, 0.0], [-1.0, -1.5, -1.0], info={"acc": 0.0})
    metrics: dict[str, Any] = {}
    got = advantages(queue, "monte_carlo", metrics)
    # Rewards of tokens: 0.5 (log phi + 1) = 0.25, -, -0.5 and 0, -0.25, 0; the outcome counts twice. Then to go.
    assert got == {"u_0_0": [1.75, 0.0, 1.5], "u_1_0": [-0.25, -0.25, 0.0]}
    assert metrics["credit/implicit_reward_mean"] == pytest.approx(-0.5 / 5)
    assert metrics["credit/implicit_accuracy"] == 0.5, "the success is worth -0.25, the failure as much"
    assert metrics["credit/outcome_mean"] == pytest.approx((1.75 - 0.25) / 2)


@pytest.mark.parametrize("name", ["dr_grpo", "grpo"])
def test_an_estimator_of_outcomes_sees_their_sum(queue: StoredRows, name: str) -> None:
    played(queue, "u_0_0", [0.0, 1.0], [-1.0, -0.5])
    played(queue, "u_1_0", [0.0, 1.0], [-2.0, -1.0])
    # Sums: 2 + 0.25 and 2 - 0.5, less their mean.
    assert advantages(queue, name, {}) == {"u_0_0": [0.375] * 2, "u_1_0": [-0.375] * 2}


def test_rows_that_repeat_the_score_of_their_session_keep_the_rewards_of_their_tokens(queue: StoredRows) -> None:
    for key, phi in {"u_0_0": -0.5, "u_0_1": -3.0}.items():
        played(queue, key, [1.0], [phi], place=None)
    played(queue, "u_1_0", [0.0], [-1.0], place=None)
    metrics: dict[str, Any] = {}
    advantages(queue, "dr_grpo", metrics)
    # 2 (once) + 0.25 - 1 = 1.25, and 0.
    assert metrics["credit/outcome_mean"] == pytest.approx(0.625)


def test_a_session_for_which_the_model_gives_no_number_is_taken_out(queue: StoredRows) -> None:
    played(queue, "u_0_0", [0.0, 1.0], [-1.0, math.nan])
    played(queue, "u_1_0", [0.0, 1.0], [-2.0, -1.0])
    metrics: dict[str, Any] = {}
    assert advantages(queue, "monte_carlo", metrics)["u_0_0"] == [0.0, 0.0]
    assert metrics["credit/nonfinite_sessions"] == 1


def test_where_the_model_gives_no_number_verls_loss_stays_one(queue: StoredRows) -> None:
    played(queue, "u_0_0", [0.0, 1.0], [-1.0, math.nan])
    played(queue, "u_1_0", [0.0, 1.0], [-math.inf, -0.5])
    batch = Trainer(to_config("monte_carlo"))._compute_advantage(queue.meta(), {})
    assert [queue.rows[key]["ref_log_prob"].tolist() for key in batch.keys] == [[-1.0, -1.0], [-1.0, -0.5]]
    names = ("prompts", "responses", "response_mask", "old_log_probs", "ref_log_prob", "advantages")
    data = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=names)
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=None)
    config = FSDPActorConfig(
        strategy="fsdp2", rollout_n=2, ppo_micro_batch_size_per_gpu=2, use_kl_loss=True, kl_loss_coef=0.0
    )
    log_probs = torch.nested.as_nested_tensor([torch.full((4,), -1.0)] * 2, layout=torch.jagged)
    assert losses.ppo_loss(config, {"log_probs": log_probs}, data)[0].isfinite()


class Workers:
    """verl's group of workers as far as it says what they have loaded."""

    def __init__(self, *paths: str | None) -> None:
        self._paths = paths

    def loaded_reference_path(self) -> list[str | None]:
        return list(self._paths)


@pytest.mark.parametrize(("workers", "message"), [(Workers("phi", None), "phi"), (object(), "reference_model")])
def test_workers_that_have_not_loaded_the_reward_model_end_the_run(workers: Any, message: str) -> None:
    trainer = Trainer(to_config())
    trainer.workers = workers
    with pytest.raises(PluginError, match=message):
        trainer._setup()


def test_workers_that_have_loaded_it_and_runs_without_the_section_go_on() -> None:
    for section, workers in ((SECTION, Workers("phi", "phi")), (None, object())):
        trainer = Trainer(to_config(algorithm__implicit_reward=section))
        trainer.workers = workers
        trainer._setup()
        assert trainer.ref_policy_wg is workers


def test_without_the_section_nothing_is_added(queue: StoredRows) -> None:
    played(queue, "u_0_0", [0.0, 1.0], [-0.5, -0.5])
    metrics: dict[str, Any] = {}
    Trainer(to_config(algorithm__implicit_reward=None))._compute_advantage(queue.meta(), metrics)
    assert queue.rows["u_0_0"]["advantages"].tolist() == [1.0, 1.0]
    assert not [name for name in metrics if "implicit" in name]
