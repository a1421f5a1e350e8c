"""Healthy checkpoints after an alarm: the last one stays, whatever verl's retention and the order of steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager, find_latest_ckpt_path

from verl_agentic.base.errors import ConfigError, HealthError
from verl_agentic.log.metric_log import read_metrics
from verl_agentic.verl.checkpoints import checkpoint_retention
from verl_agentic.verl.checkpoints.healthy_checkpoints import HEALTHY, Checkpoints, kept_steps
from verl_agentic.verl.extensions.monitoring.health import trainer_log
from verl_agentic.verl.extensions.monitoring.health.health_watch import HealthWatch, watch_of

assert checkpoint_retention
NAN = math.nan


class Worker:
    """A worker group of one process: a number for weights, and verl's own checkpoint manager."""

    def __init__(self) -> None:
        self.weights = 0.0
        self.manager: Any = object.__new__(BaseCheckpointManager)
        self.manager.previous_saved_paths = []

    def save_checkpoint(self, local_path: str, hdfs_path: None, step: int, max_ckpt_to_keep: int | None = None) -> None:
        self.manager.ensure_checkpoint_capacity(max_ckpt_to_keep)
        Path(local_path).mkdir(parents=True, exist_ok=True)
        (Path(local_path) / "weights").write_text(str(self.weights))
        self.manager.register_checkpoint(local_path, max_ckpt_to_keep)

    def load_checkpoint(self, local_path: str, del_local_after_load: bool) -> None:
        self.weights = float((Path(local_path) / "weights").read_text())


class Trainer:
    """verl's synchronous trainer: an update adds 1 to the weights, from the sick step on a hundred."""

    use_critic = False

    def __init__(
        self, root: Path, *, save_freq: int, keep: int | None = None, begun_at: int = 0, **health: Any
    ) -> None:
        agentic = {"health": health, "log": {"dir": str(root / "log")}}
        trainer = {"default_local_dir": str(root / "ckpt"), "save_freq": save_freq, "max_actor_ckpt_to_keep": keep}
        self.config: DictConfig = OmegaConf.create(
            {"actor_rollout_ref": {"rollout": {"custom": {"agentic": agentic}}}, "trainer": trainer, "data": {}}
        )
        self.actor_rollout_wg, self.rollout_weights = Worker(), 0.0
        self.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None, update_weights=self._update_weights)
        self.replay_buffer = SimpleNamespace()
        self.logger = SimpleNamespace(log=lambda data, step: None)
        self.global_steps = begun_at
        watch_of(self)
        self.global_steps += 1

    def _update_weights(self, step: int) -> None:
        self.rollout_weights = self.actor_rollout_wg.weights

    def _save_plainly(self) -> None:
        trainer = self.config.trainer
        folder = Path(trainer.default_local_dir, f"global_step_{self.global_steps}")
        keep = trainer.max_actor_ckpt_to_keep
        self.actor_rollout_wg.save_checkpoint(str(folder / "actor"), None, self.global_steps, max_ckpt_to_keep=keep)
        (folder / "data.pt").write_text("")
        Path(trainer.default_local_dir, "latest_checkpointed_iteration.txt").write_text(str(self.global_steps))

    def _save_checkpoint(self) -> None:
        trainer_log._note_checkpoint(Trainer._save_plainly, self)

    def _compute_metrics(self, *args: Any) -> None:
        trainer_log._log_metrics(lambda *args: None, self, *args)

    def train(self, steps: int, grad_norm: Callable[[int], float]) -> None:
        """Trains up to a step in the order of verl's loop; what makes the gradient sick makes the weights sick."""
        while self.global_steps <= steps:
            norm = grad_norm(self.global_steps)
            self.actor_rollout_wg.weights += 100.0 if math.isnan(norm) else 1.0
            if self.global_steps % self.config.trainer.save_freq == 0:
                self._save_checkpoint()
            self.checkpoint_manager.update_weights(self.global_steps)
            self._compute_metrics(None, {"actor/grad_norm": norm}, {})
            self.global_steps += 1


def weights_at(folder: Path) -> float:
    return float((folder / "actor" / "weights").read_text())


def sick_from(step: int) -> Callable[[int], float]:
    return lambda at: NAN if at >= step else 1.0


@given(
    sick=st.integers(1, 12), save_freq=st.integers(1, 4), keep=st.sampled_from([None, 1, 2, 3]),
    every=st.integers(1, 3), patience=st.integers(1, 4),
)  # fmt: skip
def test_a_run_that_an_alarm_stops_resumes_from_its_newest_healthy_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, sick: int, save_freq: int, keep: int | None, every: int, patience: int
) -> None:
    root = tmp_path_factory.mktemp("run")
    options = {"actions": {"gradient": "stop"}, "thresholds": {"gradient": {"patience": patience}}, "every": every}
    trainer = Trainer(root, save_freq=save_freq, keep=keep, **options)
    with pytest.raises(HealthError) as stopped:
        trainer.train(40, sick_from(sick))
    # The last step that was looked at and found well, and the newest checkpoint up to it.
    looked = (sick - 1) // every * every
    healthy = looked // save_freq * save_freq
    found = find_latest_ckpt_path(str(root / "ckpt"))
    if not healthy:
        assert found is None and "no healthy checkpoint" in str(stopped.value)
    else:
        assert found == str(root / "ckpt" / f"global_step_{healthy}")
        assert weights_at(Path(found)) == healthy, "what is resumed is as it was"
        assert f"that of step {healthy}" in str(stopped.value) and f"resume_from_path={found}" in str(stopped.value)
    left = [path for path in (root / "ckpt").glob("global_step_*") if (path / "actor").is_dir()]
    assert all(weights_at(path) < 100 for path in left), "no sick weights lie beside the healthy ones"
    aside = root / "ckpt" / "unhealthy" / f"global_step_{trainer.global_steps}"
    assert weights_at(aside) >= 100 and str(aside) in str(stopped.value), "a false alarm costs nothing"
    assert trainer.config.trainer.default_local_dir == str(root / "ckpt")
    assert trainer.config.trainer.max_actor_ckpt_to_keep == keep


@given(save_freq=st.integers(1, 3), keep=st.integers(1, 4), steps=st.integers(1, 30))
def test_a_healthy_run_keeps_at_most_one_checkpoint_more(
    tmp_path_factory: pytest.TempPathFactory, save_freq: int, keep: int, steps: int
) -> None:
    root = tmp_path_factory.mktemp("run")
    trainer = Trainer(root, save_freq=save_freq, keep=keep, actions={"default": "stop"})
    trainer.train(steps, lambda step: 1.0)
    left = sorted(int(p.parent.name.rpartition("_")[2]) for p in (root / "ckpt").glob("global_step_*/actor"))
    saved = list(range(save_freq, steps + 1, save_freq))
    assert left[-keep:] == saved[-keep:] and len(left) <= keep + 1
    assert kept_steps(root / "ckpt") == set(saved[-1:])


def test_an_alarm_that_looks_seldom_keeps_what_it_found_well(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=1, keep=1, actions={"boundary_collapse": "stop", "gradient": "stop"})
    watch = watch_of(trainer)
    boundary = watch.health._watches["boundary_collapse"]
    for step in range(1, 9):
        if step == 3:
            boundary.well_at = 3  # its validation
        trainer.train(step, lambda at: 1.0)
    left = {path.parent.name for path in (tmp_path / "ckpt").glob("global_step_*/actor")}
    assert left == {"global_step_3", "global_step_7", "global_step_8"} and kept_steps(tmp_path / "ckpt") == {3, 8}
    boundary.held, boundary.kind = 1, "x"
    assert watch.health.healthy_until() == 3


def test_without_a_stopping_alarm_verl_keeps_what_it_would(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=1, keep=1)
    trainer.train(4, sick_from(2))
    assert [path.parent.name for path in (tmp_path / "ckpt").glob("global_step_*/actor")] == ["global_step_4"]
    assert not (tmp_path / "ckpt" / HEALTHY).exists()
    assert find_latest_ckpt_path(str(tmp_path / "ckpt")) == str(tmp_path / "ckpt" / "global_step_4")


def test_a_rollback_goes_on_from_healthy_weights_with_other_batches(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=2, keep=1, actions={"gradient": "rollback"})
    trainer.train(9, lambda step: NAN if step == 6 else 1.0)
    # 1 to 4, then 7 to 9 on top of the weights of step 4.
    assert trainer.actor_rollout_wg.weights == trainer.rollout_weights == 7.0 and trainer.global_steps == 10
    assert weights_at(tmp_path / "ckpt" / "global_step_8") == 6.0
    assert weights_at(tmp_path / "ckpt" / "unhealthy" / "global_step_6") >= 100
    logged = {line["step"]: line for line in read_metrics(tmp_path / "log")}
    assert logged[6]["health/rolled_back_to"] == 4.0 and "health/rolled_back_to" not in logged[7]
    assert logged[6]["health/gradient"] == 1.0 and logged[7]["health/gradient"] == 0.0
    assert find_latest_ckpt_path(str(tmp_path / "ckpt")) == str(tmp_path / "ckpt" / "global_step_8")


def test_a_step_that_is_saved_again_after_a_rollback_is_not_removed_with_the_old_one(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=1, keep=2, actions={"gradient": "rollback"})
    trainer.train(3, lambda step: 1.0)
    manager = trainer.actor_rollout_wg.manager
    manager.previous_saved_paths = [*manager.previous_saved_paths[:1], *manager.previous_saved_paths]
    trainer.train(5, lambda step: 1.0)
    left = sorted(path.parent.name for path in (tmp_path / "ckpt").glob("global_step_*/actor"))
    assert left[-2:] == ["global_step_4", "global_step_5"]


@pytest.mark.parametrize("most", [1, 3])
def test_rollbacks_are_bounded_over_all_processes_of_a_run(tmp_path: Path, most: int) -> None:
    options: dict[str, Any] = {"save_freq": 1, "actions": {"gradient": "rollback"}, "max_rollbacks": most}
    trainer = Trainer(tmp_path, **options)
    trainer.train(3, sick_from(3))
    assert trainer.global_steps == 4 and trainer.actor_rollout_wg.weights == 2.0
    resumed = Trainer(tmp_path, begun_at=3, **options)
    resumed.actor_rollout_wg.weights = 2.0
    with pytest.raises(HealthError, match=rf"not well at step {3 + most} after {most} rollbacks.*that of step 2"):
        resumed.train(20, sick_from(3))
    assert find_latest_ckpt_path(str(tmp_path / "ckpt")) == str(tmp_path / "ckpt" / "global_step_2")


def test_a_rollback_without_a_healthy_checkpoint_stops_the_run(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=5, actions={"gradient": "rollback"})
    with pytest.raises(HealthError, match="gradient"):
        trainer.train(9, sick_from(3))


def test_a_stop_goes_before_a_rollback(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=1, actions={"gradient": "stop", "default": "rollback"})
    with pytest.raises(HealthError, match="that of step 2"):
        trainer.train(9, sick_from(3))


def test_alarms_forget_what_a_run_went_back_from(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, save_freq=1, actions={"gradient": "rollback"})
    trainer.train(5, lambda step: NAN if step == 4 else 1.0)
    steps = [row["step"] for row in watch_of(trainer).health._history._head]
    assert steps == [1, 2, 3, 5]
    resumed = Trainer(tmp_path, save_freq=1, begun_at=5, actions={"gradient": "rollback"})
    watch = watch_of(resumed)
    watch.remember(before=6)
    assert [row["step"] for row in watch.health._history._head] == steps and watch.num_rollbacks == 1
    assert not any(watch.health.metrics().values())


def test_weights_that_cannot_be_saved_hide_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(tmp_path, save_freq=2, actions={"gradient": "stop"})
    trainer.train(2, lambda step: 1.0)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(trainer.actor_rollout_wg, "save_checkpoint", fail)
    with pytest.raises(HealthError, match="no space left"):
        trainer.train(3, sick_from(3))


def test_a_checkpoint_that_a_run_was_resumed_from_is_one_to_go_back_to(tmp_path: Path) -> None:
    other = tmp_path / "other" / "global_step_7"
    (other / "actor").mkdir(parents=True)
    (other / "actor" / "weights").write_text("7.0")
    checkpoints = Checkpoints(tmp_path / "ckpt", begun_at=7, resumed_from=other)
    assert checkpoints.newest(8) == 7 and checkpoints.folder(7) == other and checkpoints.newest(6) is None
    (tmp_path / "ckpt" / "global_step_3" / "actor").mkdir(parents=True)
    (tmp_path / "ckpt" / "global_step_9" / "actor").mkdir(parents=True)
    (tmp_path / "ckpt" / "latest_checkpointed_iteration.txt").write_text("9")
    again = Checkpoints(tmp_path / "ckpt", begun_at=3)
    assert again.newest(99) == 3, "what lies there of a later step is of another run"
    again.put_aside(after=0)
    assert (tmp_path / "ckpt" / "global_step_9").is_dir()
    assert (tmp_path / "ckpt" / "latest_checkpointed_iteration.txt").read_text() == "9", "it is not ours"
    assert (tmp_path / "ckpt" / "unhealthy" / "global_step_3").is_dir()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer.v1.trainer_mode": "separate_async"}, "separate_async"),
        ({"trainer.v1.trainer_mode": "colocate_async"}, "synchronous"),
        ({"trainer.v1.trainer_mode": "agentic_colocate_async"}, "synchronous"),
        ({"trainer.save_freq": -1}, "trainer.save_freq"),
        ({"actor_rollout_ref.actor.checkpoint.async_save": True}, "async_save"),
        ({"actor_rollout_ref.actor.checkpoint.load_contents": ["model"]}, "'optimizer'"),
        ({"critic.checkpoint.save_contents": ["optimizer"]}, "'model'"),
    ],
)
def test_a_rollback_is_refused_where_a_run_cannot_go_back(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    config = Trainer(tmp_path, save_freq=1, actions={"gradient": "rollback"}).config
    for mode in ("sync", "agentic_sync"):
        OmegaConf.update(config, "trainer.v1.trainer_mode", mode, force_add=True)
        HealthWatch(config)
    for key, value in changes.items():
        OmegaConf.update(config, key, value, force_add=True)
    with pytest.raises(ConfigError, match=message):
        HealthWatch(config)
    OmegaConf.update(config, "actor_rollout_ref.rollout.custom.agentic.health.actions.gradient", "stop")
    HealthWatch(config)
