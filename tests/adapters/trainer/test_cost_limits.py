"""Costs with limits under our trainers: charges, multipliers, and their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from stored_rows import StoredRows, algorithm
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.verl.trainer.trainers import CreditMixin

LIMITS = {"max_mean": {"unsafe": 0.25}, "lr": 0.4, "initial": 1.0}


def to_config(name: str = "monte_carlo", section: Any = LIMITS, **trainer: Any) -> DictConfig:
    return OmegaConf.create(
        {
            "algorithm": algorithm(adv_estimator=name, cost_limits=section),
            "actor_rollout_ref": {
                "rollout": {"n": 2, "calculate_log_probs": False, "custom": {"agentic": {"audit": "off"}}},
                "actor": {"strategy": "fsdp2", "policy_loss": {"loss_mode": "vanilla"}, "use_kl_loss": False},
                "model": {"path": "policy"},
            },
            "trainer": {
                "v1": {"trainer_mode": "agentic_sync"},
                "critic_warmup": 0,
                "resume_mode": "auto",
                "default_local_dir": "out",
                **trainer,
            },
        }
    )


class Verl:
    """verl's trainer as far as advantages and checkpoints need it."""

    global_steps = 7

    def __init__(self, config: Any) -> None:
        self.config = config

    def _save_checkpoint(self) -> None:
        pass

    def _load_checkpoint(self) -> None:
        pass

    _compute_advantage = PPOTrainer._compute_advantage


class Trainer(CreditMixin, Verl):
    mode = "sync"


def put(queue: StoredRows, key: str, rewards: list[float], unsafe: float | None, **more: Any) -> None:
    queue.put_row(key, rewards, info={"acc": 1.0} if unsafe is None else {"acc": 1.0, "unsafe": unsafe}, **more)


def advantages(trainer: Trainer, queue: StoredRows, metrics: dict[str, Any]) -> dict[str, list[float]]:
    batch = trainer._compute_advantage(queue.meta(), metrics)
    return {key: queue.rows[key]["advantages"].tolist() for key in batch.keys}


def test_a_session_pays_its_cost_once_at_its_last_token(queue: StoredRows) -> None:
    put(queue, "u_0_0", [0.0, 0.0], 1.0, place="part")
    put(queue, "u_0_1", [0.0, 1.0, 0.0], 1.0, mask=[1, 1, 0])
    put(queue, "u_1_0", [0.0, 1.0], 0.0)
    metrics: dict[str, Any] = {}
    got = advantages(Trainer(to_config()), queue, metrics)
    # (reward - 1 * cost) / (1 + 1), to go over both rows of the session.
    assert got == {"u_0_0": [0.0, 0.0], "u_0_1": [0.0, 0.0, 0.0], "u_1_0": [0.5, 0.5]}
    assert {name: value for name, value in metrics.items() if name.startswith("cost/")} == {
        "cost/unsafe/mean": 0.5, "cost/unsafe/limit": 0.25, "cost/unsafe/multiplier": 1.0,
    }  # fmt: skip


def test_the_next_step_has_the_next_multiplier_also_after_a_checkpoint(queue: StoredRows, tmp_path: Path) -> None:
    put(queue, "u_0_0", [0.0, 1.0], 1.0)
    put(queue, "u_1_0", [0.0, 1.0], 0.0)
    config, metrics = to_config(default_local_dir=str(tmp_path)), dict[str, Any]()
    trainer = Trainer(config)
    advantages(trainer, queue, metrics)
    trainer._save_checkpoint()
    resumed = Trainer(to_config(default_local_dir=str(tmp_path)))
    resumed._load_checkpoint()
    for each in (trainer, resumed):
        advantages(each, queue, metrics)
        assert metrics["cost/unsafe/multiplier"] == pytest.approx(1.0 + 0.4 * (0.5 - 0.25))


def test_void_sessions_and_sessions_without_the_cost_neither_pay_nor_count(queue: StoredRows) -> None:
    put(queue, "u_0_0", [0.0, 1.0], 0.5)
    put(queue, "u_1_0", [0.0, 1.0], None)
    put(queue, "u_2_0", [0.0, 0.0], 9.0, mask=[0, 0])
    metrics: dict[str, Any] = {}
    got = advantages(Trainer(to_config()), queue, metrics)
    assert (got["u_0_0"], got["u_1_0"], got["u_2_0"]) == ([0.25, 0.25], [0.5, 0.5], [0.0, 0.0])
    assert metrics["cost/unsafe/mean"] == 0.5


@pytest.mark.parametrize(
    ("unsafe", "error", "message"), [(None, ConfigError, r"'unsafe'.*\['acc'\]"), (-1.0, DataError, "unsafe = -1")]
)
def test_a_cost_that_no_episode_has_or_that_is_negative_ends_the_run(
    queue: StoredRows, unsafe: float | None, error: type[Exception], message: str
) -> None:
    put(queue, "u_0_0", [1.0], unsafe)
    with pytest.raises(error, match=message):
        advantages(Trainer(to_config()), queue, {})


@pytest.mark.parametrize("name", ["gdpo", "safe_remax"])
def test_an_estimator_that_ignores_changed_rewards_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"cost_limits.*{name}"):
        Trainer(to_config(name))


def test_without_the_section_nothing_changes(queue: StoredRows, tmp_path: Path) -> None:
    put(queue, "u_0_0", [0.0, 1.0], 1.0)
    metrics: dict[str, Any] = {}
    trainer = Trainer(to_config(section=None, default_local_dir=str(tmp_path)))
    assert advantages(trainer, queue, metrics) == {"u_0_0": [1.0, 1.0]}
    trainer._save_checkpoint()
    assert not [name for name in metrics if name.startswith("cost/")] and not list(tmp_path.iterdir())
