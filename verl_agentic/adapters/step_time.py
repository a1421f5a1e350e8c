"""Where the time of every training step went, as metrics `time/*`, `tool_time/*` and `turn_time/*`.

`diagnostics.time_ledger` says what they mean. What it needs beyond verl's timers: when the trainer waited for each
batch, and the timelines of the batch's episodes, which their last rows carry (`adapters.waiting`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.adapters.session_rows import last_rows
from verl_agentic.adapters.waiting import EPISODE_TIME
from verl_agentic.diagnostics.time_ledger import EpisodeTime, Wait, time_ledger, tool_times, turn_times

LOG_S = "agentic_log_s"
"""Attribute of the trainer: timer of verl's -> seconds of it that went into the log and the audit in this step."""


def _recorded(original: Any) -> Any:
    """Notes when the trainer waited, and the last rows of the episodes that it got."""

    @functools.wraps(original)
    def wait(self: Any, global_steps: int, partition_id: str, *args: Any, **kwargs: Any) -> Any:
        if partition_id == "val" or getattr(self, "is_waiting", False):
            return original(self, global_steps, partition_id, *args, **kwargs)
        self.is_waiting, began_at = True, time.time()
        try:
            found = original(self, global_steps, partition_id, *args, **kwargs)
        finally:
            self.is_waiting = False
        # Of a wait for groups that are not taken yet, nothing is known of the episodes.
        keys = list(last_rows(found[0].keys).values()) if hasattr(found[0], "keys") else []
        self.waits = [*getattr(self, "waits", []), (began_at, time.time(), keys)]
        return found

    return wait


def _prepare_step(original: Any) -> Any:
    @functools.wraps(original)
    def prepare(self: Any) -> Any:
        started = time.monotonic()
        try:
            return original(self)
        finally:
            self.handing_out_s = getattr(self, "handing_out_s", 0.0) + time.monotonic() - started

    return prepare


def _compute_metrics(original: Any) -> Any:
    @functools.wraps(original)
    def compute(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        original(self, batch, metrics, *args, **kwargs)
        waits = to_waits(getattr(self.replay_buffer, "waits", []), batch)
        self.replay_buffer.waits = []
        episodes = [episode for wait in waits for episode in wait.episodes]
        spent = {"handing_out_s": self.__dict__.pop("handing_out_s", 0.0), "log_s": self.__dict__.pop(LOG_S, None)}
        metrics.update(time_ledger(metrics, waits=waits, **spent))
        metrics.update({**tool_times(episodes), **turn_times(episodes)})

    return compute


def to_waits(recorded: Sequence[tuple[float, float, list[str]]], batch: Any) -> list[Wait]:
    """Returns the waits of a step, with the episodes of their batches.

    Args:
        recorded: begin and end of each, in seconds since 1970, and the keys of the last rows.
        batch: what the step trained on; still in the queue.
    """
    wanted = set(batch.keys)
    keys = [key for _, _, waited in recorded for key in waited if key in wanted]
    found = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"]) if keys else {}
    columns: list[Any] = list(found["extra_fields"]) if "extra_fields" in found else []
    times = dict(zip(keys, (getattr(column, "data", column).get(EPISODE_TIME) for column in columns), strict=False))
    return [
        Wait(
            began_at=began_at,
            ended_at=ended_at,
            episodes=tuple(EpisodeTime.from_dict(spent) for key in waited if (spent := times.get(key)) is not None),
        )
        for began_at, ended_at, waited in recorded
    ]


for _cls in (ReplayBuffer, ReplayBufferAsync):
    _cls.sample = _recorded(_cls.sample)
ReplayBufferAsync.wait_for_sampleable = _recorded(ReplayBufferAsync.wait_for_sampleable)
PPOTrainer.prepare_step = _prepare_step(PPOTrainer.prepare_step)
PPOTrainer._compute_metrics = _compute_metrics(PPOTrainer._compute_metrics)
