"""Patches verl: its trainers attach, save and load our replay buffers with gates.

Wraps `_init_dataloader`, `_save_checkpoint` and `_load_checkpoint` of `PPOTrainer`. Gates drop and replace groups that
are not worth training on.

    trainer.v1.sampler.custom_sampler:
      {path: pkg://verl_agentic.verl.replay_buffer.gated_buffer, name: GatedReplayBuffer}
    trainer.v1.sampler.sampler_kwargs: {gates: [void_groups, zero_variance, {name: band_pass, low: 0.1, high: 0.9}]}

Polling, eviction, refill, draining and failures stay verl's; this class only decides which groups its filter accepts.
The sync buffer gets a credit of two prompts per dropped group, as in verl, but sends them out only when needed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.sampling.gate import decide, decide_together
from verl_agentic.sampling.gating.gate_stats import GateStats
from verl_agentic.sampling.gating.starvation import StarvationGuard, prompts_due
from verl_agentic.verl.batches.row_store import GROUP_SIZE, session_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.replay_buffer.finished_groups import FinishedGroup, read_groups
from verl_agentic.verl.replay_buffer.gate_options import GateOptions
from verl_agentic.verl.replay_buffer.group_replay import ReplayedGroups, check_trainer, forget_memories
from verl_agentic.verl.sections import plain

_SECTION = "trainer.v1.sampler.sampler_kwargs"
_POLL_INTERVAL_S = 0.05
_SURPLUS = "training/filter_groups/discarded_surplus_samples"
logger = logging.getLogger(__name__)


class GatedBuffer:
    """Additions to both of verl's buffers; a mixin before verl's class."""

    is_sync: bool

    def __init__(self, *, sampler_kwargs: Any, refill_fn: Any, **verl: Any) -> None:
        """Makes the buffer with the arguments of verl's trainers."""
        self.options = options = read_settings(GateOptions, plain(sampler_kwargs), section=_SECTION)
        if options.keep_surplus and not self.is_sync:
            raise ConfigError(
                f"{_SECTION}.keep_surplus is for the sync trainer, got {options.keep_surplus}: the others always keep "
                "what is left, for trainer.v1.sampler.max_off_policy_threshold versions"
            )
        self._submit = refill_fn
        # A metric switches verl's filter on; it requests prompts one by one. This class decides which groups it
        # accepts.
        verl |= {
            "refill_fn": self._refill_prompts if self.is_sync else self._replace_groups,
            "filter_groups_metric": "acc",
        }
        verl |= {"gen_batch_size": 1, "max_inflight_gen_batches": options.max_inflight_batches}
        self._verl_methods.__init__(sampler_kwargs=sampler_kwargs, poll_interval=_POLL_INTERVAL_S, **verl)
        self._shortest_poll_s: float = self._verl_state.poll_interval
        self._alone = [gate for gate in options.gates if gate.type.scope == "group"]
        self._aging = [gate for gate in self._alone if "lag" in gate.type.needs]
        self._together = [gate for gate in options.gates if gate.type.scope == "groups"]
        self._needs = {name for gate in options.gates for name in gate.type.needs}
        self._guard = StarvationGuard(
            max_drop_rate=options.max_drop_rate,
            window=options.window,
            max_generated_groups=options.max_generated_groups,
        )
        self._stats = self._new_stats()
        self._judged: dict[str, FinishedGroup] = {}
        self._waiting: dict[str, FinishedGroup] = {}
        """Groups that wait for gates which see all candidates."""
        self._step = self._wanted = self._owed = 0
        self._surplus: set[str] = set()
        self._replay: ReplayedGroups | None = options.replay and ReplayedGroups(options.replay)
        self._dropped = self._replayed = 0
        """Groups since the last batch."""
        self._batch_lags: dict[str, int] = {}
        self._batch_uses: dict[str, int] = {}
        """Uses of the replayed groups of the batch."""

    @property
    def _verl_methods(self) -> Any:
        """verl's methods."""
        return super()

    @property
    def _verl_state(self) -> Any:
        """This buffer, with the attributes that verl's class gives it."""
        return self

    def attach(self, config: Any) -> None:
        """Takes data that verl does not pass to a custom sampler. Raises ConfigError if the trainer cannot replay."""
        if self._replay is not None:
            check_trainer(config)
        self.sync_refill_failed_groups = bool(config.trainer.v1.sampler.get("sync_refill_failed_groups", False))
        if config.data.get("gen_batch_size", None) not in (None, 1):
            logger.warning(f"data.gen_batch_size={config.data.gen_batch_size} is overridden to 1: refills are exact")
        with open_dict(config):
            config.data.gen_batch_size = 1

    def save(self, folder: Path) -> None:
        """Saves the memory of replayed groups."""
        if self._replay is not None:
            self._replay.save(folder)

    def load(self, folder: Path) -> None:
        if self._replay is not None:
            self._replay.load(folder, has_queue=not self.is_sync)  # verl saves the queue of asynchronous trainers

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Returns a batch of groups that passed the gates, and metrics."""
        if partition_id == "val":
            return self._verl_methods.sample(global_steps, partition_id, batch_size)
        self._begin_batch(batch_size)
        self._owed, self.train_batch_size = 0, batch_size
        try:
            # Calls verl's loop, because other adapters have wrapped it.
            batch, metrics = self._verl_methods.sample(global_steps, partition_id, batch_size)
        finally:
            num_kept, self._surplus, self._wanted = len(self._surplus), set(), 0
        if _SURPLUS in metrics:
            metrics = {**metrics, _SURPLUS: metrics[_SURPLUS] - num_kept}
        return batch, {**metrics, **self._end_batch(batch_size, num_kept)}

    def wait_for_sampleable(self, global_steps: int, partition_id: str, target_count: int) -> Any:
        """Calls verl's asynchronous buffer."""
        if partition_id != "val":
            self._begin_batch(target_count)
        return self._verl_methods.wait_for_sampleable(global_steps, partition_id, target_count)

    def _begin_batch(self, batch_size: int) -> None:
        self._wanted = batch_size
        self._guard.begin_batch(batch_size)

    def _end_batch(self, batch_size: int, num_kept: int) -> dict[str, float]:
        lags, uses = self._batch_lags, self._batch_uses
        numbers = self._stats.metrics(batch_size=batch_size)
        numbers |= {"lag/mean": _compute_mean(lags.values()), "lag/max": float(max(lags.values(), default=0))}
        if self.options.keep_surplus:
            used = sum(lag > 0 for uid, lag in lags.items() if uid not in uses)
            numbers |= {"surplus/kept_groups": float(num_kept), "surplus/used_groups": float(used)}
        if self._replay is not None:
            numbers |= {"replay/stored_groups": float(len(self._replay)), "replay/used_groups": float(len(uses))}
            numbers |= {
                "replay/uses": _compute_mean(uses.values()),
                "replay/lag/mean": _compute_mean(lags[uid] for uid in uses),
            }
            self._replay.end_batch()
        self._dropped = self._replayed = 0
        self._guard.end_batch()
        self._stats = self._new_stats()
        return {f"training/gate/{name}": value for name, value in numbers.items()}

    def _new_stats(self) -> GateStats:
        return GateStats([gate.name for gate in self.options.gates])

    # Called by verl's loop.

    def _sync_metadata_from_transfer_queue(self) -> None:
        started = time.perf_counter()
        self._verl_methods._sync_metadata_from_transfer_queue()
        # Polling takes at most a tenth of the time.
        self.poll_interval = max(self._shortest_poll_s, 9 * (time.perf_counter() - started))

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        if partition_id != "val":
            self._step = global_steps
        return self._verl_methods._terminal_eviction_reasons(global_steps, partition_id)

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        if partition_id == "val":
            return set(), Counter()
        self._judge_groups(partition_id)
        dropped = {uid: judged.decision for uid, judged in self._judged.items() if not judged.decision.is_kept}
        self._guard.check(
            num_useful=self._num_useful,
            batch_size=self._wanted,
            num_inflight=self._num_inflight(partition_id) if self.is_sync else 0,
        )
        return set(dropped), Counter(d.group.known("acc")[0] for d in dropped.values() if d.gate == "zero_variance")

    def _sampleable_terminal_keys(self, partition_id: str, eviction_reasons: Any) -> set[str]:
        keys = self._verl_methods._sampleable_terminal_keys(partition_id, eviction_reasons)
        return keys if partition_id == "val" else keys - self._waiting.keys()

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        selected = self._verl_methods._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        if partition_id != "val":
            replayed = {} if self._replay is None else self._replay.in_queue
            self._batch_lags = {uid: self._compute_lag(uid) for uid in selected[0]}
            self._batch_uses = {uid: replayed[uid].uses for uid in selected[0] if uid in replayed}
            # They would be used in the next step, with weights that are one version newer.
            unselected_keys = sampleable_keys - set(selected[0]) - replayed.keys()
            self._surplus = {uid for uid in unselected_keys if self._compute_lag(uid) + 1 <= self.options.keep_surplus}
        return selected

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        leaving = uids if partition_id == "val" else uids - self._surplus
        if self._replay is not None:
            self._replay.take_out(leaving)
        self._verl_methods._clear_groups(partition_id, leaving)

    def _materialize_batch(self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: Any) -> Any:
        snapshot, judged = partition_snapshot, {}
        if partition_id != "val":
            judged = {uid: self._judged[uid] for uid in selected_prompt_uids if uid in self._judged}
            dropped = {
                (uid, session) for uid, judged_group in judged.items() for session in judged_group.dropped_sessions()
            }
            dropped_keys = [key for key in snapshot if session_of(key) in dropped]
            if dropped_keys:
                tq.kv_clear(partition_id=partition_id, keys=dropped_keys)
            snapshot = {key: tag for key, tag in snapshot.items() if session_of(key) not in dropped}
            snapshot = _with_sizes(snapshot, cut={uid for uid, _ in dropped})
        batch = self._verl_methods._materialize_batch(partition_id, selected_prompt_uids, snapshot)
        if self._replay is not None:
            self._replay.keep(batch, judged)
            self._replay.trained(selected_prompt_uids)
        return batch

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if self.is_sync and partition_id != "val":
            self._hand_out(partition_id)
        return self._verl_methods._wait_for_next_poll(partition_id, last_debug_time)

    # Prompts.

    def _refill_prompts(self, num_prompts: int) -> None:
        self._owed += num_prompts
        self._hand_out("train")

    def _replace_groups(self, num_prompts: int) -> None:
        """Replaces groups of the asynchronous buffers one by one."""
        num_missing = num_prompts - self._put_back(num_prompts)
        if num_missing:
            self._submit(num_missing)

    def _put_back(self, count: int) -> int:
        """Puts at most `count` trained groups back into the queue; returns how many."""
        before = self._replayed
        while self._replay is not None and self._replayed - before < count:
            group = self._replay.draw(step=self._step, batch_size=self._wanted)
            if group is None:
                break
            judged = group.rows.judged.at(self._step)
            decision = decide(judged.decision.group, self._aging)
            if decision.is_kept:
                uid = self._replay.put_back(group, step=self._step, partition_id="train")
                self._judged[uid] = replace(judged, decision=decision).named(uid)
                self._replayed += 1
        return self._replayed - before

    def _hand_out(self, partition_id: str) -> None:
        """Sends out as many owed prompts as the batch needs beyond the replayed groups."""
        self._put_back(min(self._dropped - self._replayed, self._wanted - self._num_useful))
        inflight, budget = self._num_inflight(partition_id), self._guard.budget_left
        slots = self.options.max_inflight_batches * self._wanted - inflight
        due = prompts_due(
            batch_size=self._wanted,
            num_useful=self._num_useful,
            num_open=inflight + len(self._waiting),
            keep_rate=self._guard.keep_rate,
            allowed=min(self._owed, slots, self._owed if budget is None else budget - inflight),
        )
        if due:
            self._owed -= due
            self._submit(due)

    def _num_inflight(self, partition_id: str) -> int:
        return len(self._verl_state.pending_keys[partition_id]) + len(self._verl_state.running_keys[partition_id])

    @property
    def _num_useful(self) -> int:
        return sum(judged.decision.is_kept for judged in self._judged.values())

    def _compute_lag(self, uid: str) -> int:
        return self._judged[uid].at(self._step).lag if uid in self._judged else 0

    # Judging.

    def _judge_groups(self, partition_id: str) -> None:
        """Applies the gates to new and older groups."""
        terminal = set(self._verl_state.finished_keys[partition_id])
        tags = self._verl_state.partitions[partition_id]
        if self.is_sync:  # verl's asynchronous buffer replaces all failed groups
            failed = self._verl_state.failure_keys[partition_id]
            terminal |= (
                failed & {session_of(key)[0] for key in tags} if self._verl_state.sync_refill_failed_groups else failed
            )
        for by_uid in (self._judged, self._waiting, {} if self._replay is None else self._replay.in_queue):
            for uid in by_uid.keys() - terminal:
                del by_uid[uid]
        self._judge_again()
        new = terminal - self._judged.keys() - self._waiting.keys()
        for group in read_groups(new, partition_id=partition_id, tags=tags, needs=self._needs, step=self._step):
            judged = replace(group, decision=decide(group.group, self._alone))
            if judged.decision.is_kept and self._together:
                self._waiting[judged.group.uid] = judged
            else:
                self._record_decision(judged)
        self._judge_together(partition_id)

    def _judge_together(self, partition_id: str) -> None:
        is_due = len(self._waiting) >= (self.options.cohort or self._wanted or 1)
        if self._waiting and (is_due or not self._num_inflight(partition_id)):
            waiting = list(self._waiting.values())
            self._waiting = {}
            decisions = decide_together([judged.decision for judged in waiting], self._together)
            for judged, decision in zip(waiting, decisions, strict=True):
                self._record_decision(replace(judged, decision=decision))

    def _judge_again(self) -> None:
        """Applies the gates that use lags to groups of earlier steps."""
        for by_uid in (self._judged, self._waiting) if self._aging else ():
            for uid, judged in list(by_uid.items()):
                if judged.step < self._step and judged.decision.is_kept:
                    older = judged.at(self._step)
                    by_uid[uid] = replace(older, decision=decide(older.decision.group, self._aging))
                    if not by_uid[uid].decision.is_kept:
                        self._record_decision(by_uid.pop(uid))

    def _record_decision(self, judged: FinishedGroup) -> None:
        self._judged[judged.group.uid] = judged
        self._stats.record(judged.group, judged.decision)
        self._guard.record(judged.decision)
        self._dropped += not judged.decision.is_kept
        watch = getattr(self, "watch_episodes", None)
        if watch is not None and not judged.decision.is_kept:
            watch(judged.extras)  # those of the batch are watched when it is sampled


class GatedSyncBuffer(GatedBuffer, ReplayBuffer):
    """verl's buffer for synchronous trainers."""

    is_sync = True


class GatedAsyncBuffer(GatedBuffer, ReplayBufferAsync):
    """verl's buffer for asynchronous trainers."""

    is_sync = False


def GatedReplayBuffer(*, trainer_mode: str, **verl: Any) -> Any:
    """Returns the buffer for a trainer; verl takes only one name for a custom buffer."""
    return (GatedSyncBuffer if trainer_mode == "sync" else GatedAsyncBuffer)(trainer_mode=trainer_mode, **verl)


def _compute_mean(values: Iterable[float]) -> float:
    """Returns the mean; 0 if empty."""
    numbers = list(values)
    return sum(numbers) / max(1, len(numbers))


def _with_sizes(snapshot: Any, *, cut: set[str]) -> Any:
    """Returns a snapshot in which rows of reduced groups have their number of sessions, for the audit."""
    sizes = Counter(uid for uid, _ in {session_of(key) for key in snapshot if session_of(key)[0] in cut})
    return {
        key: {**tag, GROUP_SIZE: sizes[session_of(key)[0]]} if session_of(key)[0] in cut else tag
        for key, tag in snapshot.items()
    }


@wrap(PPOTrainer, "_init_dataloader")
def _attach_buffer(init_dataloader: Any, self: Any) -> None:
    if isinstance(self.replay_buffer, GatedBuffer):
        self.replay_buffer.attach(self.config)
    init_dataloader(self)


@wrap(PPOTrainer, "_save_checkpoint")
def _save_buffer(save: Any, self: Any) -> None:
    if not isinstance(self.replay_buffer, GatedBuffer):
        return save(self)
    folder, max_kept = Path(self.config.trainer.default_local_dir), self.config.trainer.get("max_actor_ckpt_to_keep")
    # First, because verl marks the checkpoint as complete at the end; only then may older ones be removed.
    self.replay_buffer.save(folder / f"global_step_{self.global_steps}")
    save(self)
    if max_kept:
        forget_memories(folder, max_kept=int(max_kept))  # verl empties the folders of models only


@wrap(PPOTrainer, "_load_checkpoint")
def _load_buffer(load: Any, self: Any) -> None:
    load(self)
    if isinstance(self.replay_buffer, GatedBuffer) and self.global_steps:
        trainer = self.config.trainer
        folder = Path(trainer.default_local_dir, f"global_step_{self.global_steps}")
        self.replay_buffer.load(Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else folder)
