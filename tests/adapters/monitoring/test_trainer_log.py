"""The trainer's records in a run's log, the batches that it refuses, and the reasons to stop."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from stored_rows import StoredRows, algorithm

from verl_agentic.base.errors import AuditError, ConfigError, HealthError, InfrastructureError
from verl_agentic.log.lines import read_lines
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.metric_log import read_metrics
from verl_agentic.log.reader import RunLog, write_run
from verl_agentic.log.writer import log_writer
from verl_agentic.observe.diagnosis.evidence import RunEvidence
from verl_agentic.verl.batches.row_store import GROUP_SIZE, PLAYED_UID
from verl_agentic.verl.extensions.monitoring.health import trainer_log
from verl_agentic.verl.object_state import state_of


class Trainer:
    """verl's trainer, as far as the log sees it."""

    total_training_steps = 3

    def __init__(self, *, n: int = 2, **agentic: Any) -> None:
        rollout = {"n": n, "temperature": 1.0, "custom": {"agentic": agentic}}
        self.config: DictConfig = OmegaConf.create(
            {
                "algorithm": algorithm(),
                "actor_rollout_ref": {"rollout": rollout},
                "trainer": {"default_local_dir": "checkpoints"},
                "data": {},
            }
        )
        self.global_steps = 3
        self.logged: list[dict[str, Any]] = []
        self.num_checkpoints = 0
        self.logger = SimpleNamespace(log=lambda data, step: self.logged.append(dict(data)))

    def _save_checkpoint(self) -> None:
        self.num_checkpoints += 1


def advantages_of(trainer: Any, queue: StoredRows, metrics: dict[str, Any] | None = None) -> None:
    """Runs a batch through the patched stage; the estimator gives 0.5 to every token."""

    def estimate(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        for key in batch.keys:
            row = queue.rows[key]
            row["advantages"] = 0.5 * row["response_mask"].float()
            row["returns"] = row["advantages"]
        return batch

    trainer_log._log_advantages(estimate, trainer, queue.meta(), {} if metrics is None else metrics)


def put(queue: StoredRows, key: str, rewards: list[float], *, segments: Any = None, **columns: Any) -> None:
    queue.put_row(key, rewards, old_log_probs=torch.full((len(rewards),), -1.0), **columns)
    if segments is not None:
        queue.rows[key]["extra_fields"]["segments"] = segments


def test_what_the_trainer_made_of_every_row_is_joined_to_what_was_played(queue: StoredRows, tmp_path: Path) -> None:
    played = [{"uid": "a", "session": s, "step": 3, "split": "train", "reward": float(s)} for s in range(2)]
    write_run(tmp_path, trajectories=played)
    put(queue, "a_0_0", [0.0, 0.0, 0.0], entropy=torch.tensor([0.1, 0.2, 0.3]))
    put(queue, "a_1_0", [0.0, 1.0], mask=[0, 1], entropy=torch.tensor([0.1, 0.2]))
    put(queue, "a_1_0pad_0_0", [0.0, 0.0], mask=[0, 0], tag={"is_padding": True}, entropy=torch.zeros(2))
    trainer = Trainer(log={"dir": str(tmp_path)})
    advantages_of(trainer, queue)
    log_writer("updates", LogOptions(dir=str(tmp_path))).close()
    run = RunLog(tmp_path)
    second = run.record(1)
    assert second["advantages"] == [0.0, 0.5] and second["old_log_probs"] == [-1.0, -1.0]
    assert second["entropies"] == pytest.approx([0.1, 0.2]) and second["values"] == [] == second["returns"]
    assert (second["trained_step"], second["paid"], second["mean_advantage"]) == (3, 1.0, 0.5)
    assert second["num_trained_tokens"] == 1 and run.record(0)["num_trained_tokens"] == 3
    assert run.table("updates", ["uid"]).num_rows == 2, "rows that only fill the batch are not in it"
    assert (state_of(trainer).log_s or {})["adv"] > 0, "the time ledger knows what the log costs"


def test_what_is_replayed_is_an_update_of_what_was_played(queue: StoredRows, tmp_path: Path) -> None:
    write_run(tmp_path, trajectories=[{"uid": "a", "session": 0, "step": 1, "split": "train"}])
    put(queue, "fresh_0_0", [1.0], tag={PLAYED_UID: "a"})
    advantages_of(Trainer(n=1, log={"dir": str(tmp_path)}), queue)
    log_writer("updates", LogOptions(dir=str(tmp_path))).close()
    assert RunLog(tmp_path).record(0)["trained_step"] == 3


def test_sessions_that_a_gate_took_out_are_not_missed(queue: StoredRows) -> None:
    for session in (0, 2):
        put(queue, f"a_{session}_0", [1.0], tag={GROUP_SIZE: 2})
    advantages_of(Trainer(n=3), queue)
    put(queue, "b_0_0", [1.0])
    with pytest.raises(AuditError, match="1 of 3"):
        advantages_of(Trainer(n=3), queue)


SEGMENTS = [[0, 2, "model", 0], [2, 3, "tool", 0], [3, 4, "model", 1]]


def test_a_right_batch_passes_and_its_coverage_is_a_metric(queue: StoredRows) -> None:
    for session in range(2):
        put(queue, f"a_{session}_0", [0.0, 0.0, 0.0, 1.0], mask=[1, 1, 0, 1], segments=SEGMENTS)
    metrics: dict[str, Any] = {}
    advantages_of(Trainer(), queue, metrics)
    assert metrics["audit/breaches"] == 0 and metrics["audit/trained_token_frac"] == 0.75


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"mask": [1, 1, 1, 1]}, "observation_trained"),
        ({"mask": [1, 1, 0, 0]}, "last_token_untrained"),
        ({"rewards": [0.0, 0.0, 0.5, 1.0]}, "reward_off_mask"),
        ({"breach": "text_mismatch: row 0, ..."}, "text_mismatch"),
        ({"key": "b_1_0"}, "group_incomplete"),
    ],
)
def test_a_batch_that_holds_what_the_policy_did_not_do_is_not_trained_on(
    queue: StoredRows, tmp_path: Path, row: dict[str, Any], says: str
) -> None:
    put(queue, "a_0_0", [0.0, 0.0, 0.0, 1.0], mask=[1, 1, 0, 1], segments=SEGMENTS)
    key = row.get("key", "a_1_0")
    put(queue, key, row.get("rewards", [0.0] * 4), mask=row.get("mask", [1, 1, 0, 1]), segments=SEGMENTS)
    queue.rows[key]["extra_fields"]["breach"] = row.get("breach", "")
    with pytest.raises(AuditError, match=says):
        advantages_of(Trainer(log={"dir": str(tmp_path)}), queue)
    assert "advantages" not in queue.rows[key]
    (finding,) = read_lines(tmp_path / "health.jsonl")
    assert finding["name"] == "audit/" + says.partition(":")[0] and finding["level"] == "stop" and finding["step"] == 3


def test_a_batch_of_void_rows_alone_is_refused_with_what_failed(queue: StoredRows) -> None:
    for session, error in enumerate(("SandboxError: gone", "SandboxError: gone", "EnvError: no disk")):
        put(queue, f"a_{session}_0", [0.0], mask=[0])
        queue.rows[f"a_{session}_0"]["extra_fields"]["error"] = error
    with pytest.raises(InfrastructureError, match="SandboxError"):
        advantages_of(Trainer(n=3), queue)


def test_by_config_a_breach_only_warns_or_is_not_looked_for(
    queue: StoredRows, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue, "a_0_0", [1.0])
    metrics: dict[str, Any] = {}
    with caplog.at_level(logging.WARNING):
        advantages_of(Trainer(audit="warn"), queue, metrics)
    assert metrics["audit/breaches"] == 1 and "group a has 1 of 2 sessions" in caplog.text
    silent: dict[str, Any] = {}
    advantages_of(Trainer(audit="off"), queue, silent)
    assert silent == {}
    with pytest.raises(ConfigError, match="audit"):
        advantages_of(Trainer(audit="maybe"), queue)


def test_rows_of_verl_s_own_loops_are_warned_of_unless_the_user_wants_a_stop(
    queue: StoredRows, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue, "a_0_0", [0.0, 1.0], mask=[1, 0], place=None)
    put(queue, "a_1_0", [0.0, 1.0], mask=[1, 0], place=None)
    with caplog.at_level(logging.WARNING):
        advantages_of(Trainer(), queue)
    assert "reward_off_mask" in caplog.text and "it would be lost" in caplog.text
    with pytest.raises(AuditError, match="last_token_untrained"):
        advantages_of(Trainer(audit="stop"), queue)


def test_groups_of_different_sizes_are_whole_when_a_curriculum_makes_them(queue: StoredRows) -> None:
    for key in ("a_0_0", "b_0_0", "b_1_0", "b_2_0"):
        put(queue, key, [1.0])
    trainer = Trainer()
    OmegaConf.update(trainer.config, "data.curriculum", {"group_size": {"least": 1, "most": 3}}, force_add=True)
    advantages_of(trainer, queue)
    del queue.rows["b_1_0"]
    with pytest.raises(AuditError, match=r"\[1\]"):
        advantages_of(trainer, queue)


def metrics_of(trainer: Any, step: int, **metrics: float) -> dict[str, Any]:
    """Runs metrics through the patched stage."""
    found: dict[str, Any] = dict(metrics)
    trainer.global_steps = step
    trainer_log._log_metrics(lambda self, batch, metrics: None, trainer, None, found)
    return found


def test_metrics_of_every_step_and_alarms_are_written_and_logged(tmp_path: Path) -> None:
    trainer = Trainer(log={"dir": str(tmp_path)})
    for step in range(1, 8):
        found = metrics_of(trainer, step, **{"actor/grad_norm": float("nan") if step > 3 else 1.0})
        assert found["health/gradient"] == float(step > 3)
    assert [m["step"] for m in read_metrics(tmp_path)] == list(range(1, 8))
    assert read_metrics(tmp_path)[-1]["health/gradient"] == 1.0
    (finding,) = read_lines(tmp_path / "health.jsonl")
    assert (finding["name"], finding["step"], finding["level"]) == ("gradient", 4, "warn")


def test_the_drift_of_a_judge_is_measured_before_the_alarms_and_its_failure_ends_nothing(tmp_path: Path) -> None:
    trainer = Trainer(log={"dir": str(tmp_path)})
    watch = trainer_log.watch_of(trainer)
    watch.drift = SimpleNamespace(measure=lambda step: {"judge_drift/change": 0.5} if step == 2 else {})
    assert "judge_drift/change" not in metrics_of(trainer, 1)
    assert metrics_of(trainer, 2)["health/judge_drift"] == 1.0
    watch.drift = SimpleNamespace(measure=lambda step: 1 / 0)
    assert "judge_drift/change" not in metrics_of(trainer, 3)
    assert [entry.get("judge_drift/change") for entry in read_metrics(tmp_path)][1:] == [0.5, None]


def test_a_run_that_is_resumed_does_not_raise_an_old_alarm_again(tmp_path: Path) -> None:
    for step in range(1, 5):  # each in a process of its own
        trainer = Trainer(log={"dir": str(tmp_path)})
        metrics_of(trainer, step, **{"actor/grad_norm": float("nan") if step > 1 else 1.0})
    assert [finding["step"] for finding in read_lines(tmp_path / "health.jsonl")] == [2]


def test_an_alarm_stops_the_run_with_its_weights_aside_and_a_logger_that_fails_hides_no_reason(tmp_path: Path) -> None:
    trainer = Trainer(health={"actions": {"gradient": "stop"}})
    trainer.config.trainer.default_local_dir = str(tmp_path)
    metrics_of(trainer, 1, **{"actor/grad_norm": 1.0})
    with pytest.raises(HealthError, match="gradient"):
        metrics_of(trainer, 2, **{"actor/grad_norm": float("inf")})
    assert trainer.num_checkpoints == 1 and trainer.logged[-1]["health/gradient"] == 1.0
    trainer = Trainer(health={"actions": {"gradient": "stop"}})
    trainer.config.trainer.default_local_dir = str(tmp_path)
    trainer.logger = SimpleNamespace(log=broken_logger)
    with pytest.raises(HealthError, match="step 3"):
        metrics_of(trainer, 3, **{"actor/grad_norm": float("inf")})


def broken_logger(data: dict[str, Any], step: int) -> None:
    raise NotImplementedError("a logger that cannot")


def test_what_training_begins_with_is_known_to_alarms(tmp_path: Path) -> None:
    trainer: Any = Trainer(log={"dir": str(tmp_path)})
    trainer.global_steps = 0
    trainer_log._log_validation(lambda self: {"val-core/tasks/acc/mean@1": 0.5}, trainer)
    assert "val-core/tasks/acc/mean@1" in state_of(trainer).health_watch.health._history.names


def test_config_and_tokenizer_stand_beside_the_log_before_the_first_step(tmp_path: Path) -> None:
    trainer: Any = Trainer(log={"dir": str(tmp_path / "run")})

    class Tokenizer:
        def save_pretrained(self, folder: str) -> None:
            Path(folder).mkdir()
            (Path(folder) / "tokenizer.json").write_text("{}")

    trainer.tokenizer = Tokenizer()
    seen = trainer_log._log_run(lambda self: sorted(p.name for p in (tmp_path / "run").iterdir()), trainer)
    assert seen == ["config.yaml", "ended.jsonl", "tokenizer"]
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert written["actor_rollout_ref"]["rollout"]["n"] == 2
    assert trainer_log._log_run(lambda self: "trained", Trainer()) == "trained", "without a folder nothing is written"


def test_an_end_is_noted_when_training_returned_and_not_when_it_failed(tmp_path: Path) -> None:
    trainer: Any = Trainer(log={"dir": str(tmp_path)})
    trainer.tokenizer = None

    def train(self: Any) -> str:
        self.global_steps += 5
        return "trained"

    def fail(self: Any) -> None:
        raise RuntimeError("boom")

    assert trainer_log._log_run(train, trainer) == "trained" and RunEvidence(tmp_path).ended is True
    with pytest.raises(RuntimeError, match="boom"):
        trainer_log._log_run(fail, trainer)
    noted = [(line["step"], line["ended"]) for line in read_lines(tmp_path / "ended.jsonl")]
    assert noted == [(3, False), (8, True), (8, False)] and RunEvidence(tmp_path).ended is False


def test_what_validation_finds_before_the_first_step_is_in_the_log(tmp_path: Path) -> None:
    trainer = Trainer(log={"dir": str(tmp_path)})
    trainer.global_steps = 0
    assert trainer_log._log_validation(lambda self: {"val-core/acc": 0.25}, trainer) == {"val-core/acc": 0.25}
    metrics_of(trainer, 1, reward=1.0)
    assert [(m["step"], m.get("val-core/acc")) for m in read_metrics(tmp_path)] == [(0, 0.25), (1, None)]
