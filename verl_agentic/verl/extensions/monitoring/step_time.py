"""Patches verl: every training step gets the metrics `time/*`, `tool_time/*` and `turn_time/*`.

Wraps `sample` of `ReplayBuffer` and `ReplayBufferAsync`, `ReplayBufferAsync.wait_for_sampleable`, and `prepare_step`
and `_compute_metrics` of `PPOTrainer`.

`observe.live.time_ledger` defines them. In addition to verl's timers it needs the waits of the trainer for each
batch, and the timelines of the batch's episodes from their last rows (`verl.extensions.monitoring.episode_waits`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.observe.live.time_ledger import EpisodeTime, Wait, time_ledger, tool_times, turn_times
from verl_agentic.verl.batches.row_store import extras_of, last_rows
from verl_agentic.verl.extensions.monitoring.episode_waits import EPISODE_TIME
from verl_agentic.verl.log_and_continue import log_and_continue
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap

_WHAT = "where the time of a step went"


@wrap(ReplayBuffer, "sample")
@wrap(ReplayBufferAsync, "sample")
@wrap(ReplayBufferAsync, "wait_for_sampleable", versions=">=0.9.1")  # before, `sample` alone waited
def _record_wait(wait: Any, self: Any, global_steps: int, partition_id: str, *args: Any, **kwargs: Any) -> Any:
    """Records the trainer's wait, and the last rows of the received episodes."""
    state = state_of(self)
    if partition_id == "val" or state.is_waiting:
        return wait(self, global_steps, partition_id, *args, **kwargs)
    state.is_waiting, began_at = True, time.time()
    try:
        wait_result = wait(self, global_steps, partition_id, *args, **kwargs)
    finally:
        state.is_waiting = False
    with log_and_continue(_WHAT):
        # The episodes of a wait for groups that are not taken yet are unknown.
        keys = list(last_rows(wait_result[0].keys).values()) if hasattr(wait_result[0], "keys") else []
        state.waits.append((began_at, time.time(), keys))
    return wait_result


@wrap(PPOTrainer, "prepare_step", versions=">=0.9.1", lost="time/dispatch_s leaves out the time to hand out prompts")
def _time_preparation(prepare: Any, self: Any) -> Any:
    started = time.monotonic()
    try:
        return prepare(self)
    finally:
        state_of(self).handing_out_s += time.monotonic() - started


@wrap(PPOTrainer, "_compute_metrics")
def _add_times(compute: Any, self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
    compute(self, batch, metrics, *args, **kwargs)
    with log_and_continue(_WHAT):
        metrics.update(_take_times(self, batch, metrics))


def _take_times(trainer: Any, batch: Any, metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics of a step and resets their data."""
    buffer_state, trainer_state = state_of(trainer.replay_buffer), state_of(trainer)
    recorded, (_, extras_by_key) = buffer_state.waits, buffer_state.last_rows or (0, {})
    spent = {"handing_out_s": trainer_state.handing_out_s, "log_s": trainer_state.log_s}
    buffer_state.waits, buffer_state.last_rows = [], None
    trainer_state.handing_out_s, trainer_state.log_s = 0.0, None
    waits = to_waits(recorded, batch, extras_by_key=extras_by_key)
    episodes = [episode for wait in waits for episode in wait.episodes]
    return {**time_ledger(metrics, waits=waits, **spent), **tool_times(episodes), **turn_times(episodes)}


def to_waits(
    recorded: Sequence[tuple[float, float, list[str]]], batch: Any, *, extras_by_key: Mapping[str, Mapping[str, Any]]
) -> list[Wait]:
    """Returns the waits of a step, with the episodes of their batches.

    Args:
        recorded: start and end of each, in seconds since 1970, and the keys of the last rows.
        batch: the step's batch, still in the queue.
        extras_by_key: key -> `extra_fields` of last rows; those of others are fetched.
    """
    batch_keys = set(batch.keys)
    keys = [key for _, _, waited in recorded for key in waited if key in batch_keys]
    fetched = extras_of([key for key in keys if key not in extras_by_key], partition_id=batch.partition_id)
    times = {key: {**extras_by_key, **fetched}.get(key, {}).get(EPISODE_TIME) for key in keys}
    return [
        Wait(
            began_at=began_at,
            ended_at=ended_at,
            episodes=tuple(EpisodeTime.from_dict(spent) for key in waited if (spent := times.get(key)) is not None),
        )
        for began_at, ended_at, waited in recorded
    ]
