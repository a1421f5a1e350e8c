"""Patches verl: a trainer that waits too long for samples logs the number of missing episodes and the oldest ones.

Wraps `sample` of `ReplayBuffer` and `ReplayBufferAsync`, `ReplayBufferAsync.wait_for_sampleable`,
`ReplayBuffer._wait_for_next_poll` and `PPOTrainer._build_replay_buffer`.

The workers write the waits of their episodes to the run's folder (`verl.extensions.monitoring.episode_waits`). Without
a folder, they warn in their own log, and the trainer only counts.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.observe.live.stuck_episodes import BackoffWarner, WaitingOptions, describe, is_fresh
from verl_agentic.verl.batches.row_store import split_key
from verl_agentic.verl.extensions.monitoring.monitoring_features import waiting_options
from verl_agentic.verl.log_and_continue import log_and_continue
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.run_dir import run_dir_of

logger = logging.getLogger(__name__)
_OLDEST = 3


@dataclass(kw_only=True)
class PollWatch:
    """One wait of the trainer, and the data for its report."""

    options: WaitingOptions
    run_dir: Path | None
    group_sizes: Mapping[str, int]
    """Sessions per prompt, by partition, if all prompts of the partition have the same number."""
    began: float = 0.0
    num_wanted: int = 0
    ages: BackoffWarner | None = None

    def begin(self, num_wanted: int) -> None:
        """Starts a wait for a number of groups."""
        self.began, self.num_wanted, self.ages = time.monotonic(), num_wanted, BackoffWarner(self.options.stuck_after_s)

    def look(self, buffer: Any, partition_id: str) -> str | None:
        """Returns a due report, or None."""
        age_s = time.monotonic() - self.began
        if self.ages is None or not self.ages.is_due(partition_id, age_s):
            return None
        return waits_for(
            buffer,
            partition_id,
            num_wanted=self.num_wanted,
            group_size=self.group_sizes.get(partition_id),
            age_s=age_s,
            oldest=[] if self.run_dir is None else oldest(self.run_dir, now_at=time.time()),
        )


def waits_for(
    buffer: Any, partition_id: str, *, num_wanted: int, group_size: int | None, age_s: float, oldest: list[str]
) -> str:
    """Returns a one-line report of a replay buffer's wait, with the oldest episodes."""
    playing = buffer.running_keys[partition_id]
    sessions = {split_key(key)[:2] for key in buffer.partitions[partition_id]}
    ended = Counter(uid for uid, _ in sessions if uid in playing)
    missing = ""
    if group_size is not None:
        missing = f", {sum(max(0, group_size - ended[uid]) for uid in playing)} of their episodes missing"
    num_ended, num_failed = len(buffer.finished_keys[partition_id]), len(buffer.failure_keys[partition_id])
    oldest_waits = "; ".join(oldest) or "unknown: look for `stuck` in the log of the agent-loop workers"
    return (
        f"the trainer has waited {age_s:.0f} s for {num_wanted} groups: {num_ended} have ended, {num_failed} failed, "
        f"{len(playing)} are played{missing}, "
        f"{len(buffer.pending_keys[partition_id])} have not begun. The oldest: {oldest_waits}"
    )


def oldest(run_dir: Path, *, now_at: float) -> list[str]:
    """Returns the waits of the longest waiting episodes, over all workers that write to a folder."""
    waits: list[tuple[dict[str, Any], str]] = []
    for path in run_dir.rglob("waiting-*.json"):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # just removed
            continue
        if is_fresh(report, now_at=now_at):
            process = f"on {report['host']}, pid {report['pid']}"
            waits += [({**episode, "age_s": now_at - episode["since"]}, process) for episode in report["episodes"]]
    waits.sort(key=lambda pair: -pair[0]["age_s"])
    return [f"{describe(episode)}, {process}" for episode, process in waits[:_OLDEST]]


@wrap(ReplayBuffer, "sample")
@wrap(ReplayBufferAsync, "sample")
def _begin_sample(sample: Any, self: Any, global_steps: int, partition_id: str, batch_size: int) -> Any:
    _begin_watch(self, batch_size)
    return sample(self, global_steps, partition_id, batch_size)


@wrap(ReplayBufferAsync, "wait_for_sampleable", versions=">=0.9.1")  # before, `sample` alone waited
def _begin_wait(wait: Any, self: Any, global_steps: int, partition_id: str, target_count: int) -> Any:
    _begin_watch(self, target_count)
    return wait(self, global_steps, partition_id, target_count)


def _begin_watch(buffer: Any, num_wanted: int) -> None:
    watch = state_of(buffer).poll_watch
    with log_and_continue("what the trainer waits for"):
        if watch is not None:
            watch.begin(num_wanted)


@wrap(ReplayBuffer, "_wait_for_next_poll")
def _look_at_poll(wait: Any, self: Any, partition_id: str, last_debug_time: float) -> float:
    watch = state_of(self).poll_watch
    with log_and_continue("what the trainer waits for"):
        report = None if watch is None else watch.look(self, partition_id)
        if report is not None:
            logger.warning("stuck: %s", report)
    return wait(self, partition_id, last_debug_time)


@wrap(PPOTrainer, "_build_replay_buffer")
def _build_with_watch(build: Any, self: Any) -> Any:
    buffer = build(self)
    rollout = self.config.actor_rollout_ref.rollout
    has_varying_groups = OmegaConf.select(self.config, "data.curriculum.group_size") is not None
    state_of(buffer).poll_watch = PollWatch(
        options=waiting_options(self.config),
        run_dir=run_dir_of(self.config),
        group_sizes={"val": rollout.val_kwargs.n} | ({} if has_varying_groups else {"train": rollout.n}),
    )
    return buffer
