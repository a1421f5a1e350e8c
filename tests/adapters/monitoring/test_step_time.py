"""The metrics of where a step's time went, as the trainer gets them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from queues import Queue, install
from transfer_queue import KVBatchMeta

from verl_agentic.verl import log_and_continue
from verl_agentic.verl.extensions.monitoring import step_time
from verl_agentic.verl.extensions.monitoring.episode_waits import EPISODE_TIME
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.replay_buffer import episode_buffer


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    install(queue, monkeypatch)
    return queue


def store(queue: Queue, uid: str, spans: list[Any]) -> None:
    spent = {"began_at": 100.0, "ended_at": 104.0, "spans": spans}
    queue.rows[f"{uid}_0_0"] = {"extra_fields": {EPISODE_TIME: spent}}


def trainer_of(*uids: str, waits: list[Any] | None = None) -> Any:
    waited = [(99.0, 105.0, [f"{uid}_0_0" for uid in uids])]
    trainer = SimpleNamespace(replay_buffer=SimpleNamespace())
    state_of(trainer.replay_buffer).waits = waited if waits is None else waits
    return trainer


def batch_of(*uids: str) -> Any:
    return KVBatchMeta(keys=[f"{uid}_0_0" for uid in uids], tags=[{} for _ in uids], partition_id="train")


def times_of(trainer: Any, batch: Any) -> dict[str, Any]:
    metrics: dict[str, Any] = {"timing_s/step": 10.0, "timing_s/gen": 6.0}
    step_time._add_times(lambda self, batch, metrics: None, trainer, batch, metrics)
    return metrics


@pytest.fixture(autouse=True)
def _nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_and_continue, "_logged", set())


def test_a_span_of_an_unknown_kind_ends_no_run_and_is_the_environments(queue: Queue) -> None:
    store(queue, "a", [["step", "", 0, 0.0, 4.0], ["browser", "", 0, 1.0, 3.0]])
    found = times_of(trainer_of("a"), batch_of("a"))
    assert found["time/env_s"] == pytest.approx(4.0) and found["time/poll_s"] == pytest.approx(1.0)


def test_an_error_of_the_ledger_is_logged_once_and_the_step_goes_on(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        found = times_of(trainer_of(waits=["no wait"]), batch_of())
        assert set(found) == {"timing_s/step", "timing_s/gen"}
    assert caplog.messages == ["where the time of a step went cannot be told (said once); the run goes on"]


def test_a_batch_that_cannot_be_read_ends_no_wait(caplog: pytest.LogCaptureFixture) -> None:
    odd = (SimpleNamespace(keys=["no place in it"]), {})
    assert step_time._record_wait(lambda self, *args: odd, SimpleNamespace(), 1, "train", 1) is odd
    assert len(caplog.messages) == 1


def test_what_the_buffer_has_read_of_the_batches_of_a_step_is_not_read_again(queue: Queue) -> None:
    trainer = trainer_of("a", "b", "c")
    for uid in "abc":
        store(queue, uid, [["tool", "t", 0, 0.0, 4.0]])
    for uid, step in (("c", 1), ("a", 2), ("b", 2)):  # `c` is of a step before
        episode_buffer._sample_with_numbers(
            lambda self, *args, uid=uid: (batch_of(uid), {}), trainer.replay_buffer, step, "train", 1
        )
    queue.read.clear()
    found = times_of(trainer, batch_of("a", "b", "c"))
    assert queue.read == ["c_0_0"]
    assert found["tool_time/t/mean_s"] == 4.0
    assert state_of(trainer.replay_buffer).last_rows is None, "rows of a step are not kept for longer"
