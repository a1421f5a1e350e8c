"""Replay of trained groups: copied from TransferQueue as sampled, and put back under new names.

A replayed group is complete: it keeps the log-probs of the weights that sampled it (`rollout_log_probs`), their version
(`min_global_steps`), and, as a tag, its number of uses (`uses`). verl recomputes `old_log_probs`. The driver holds the
memory and saves it in checkpoints.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.sampling.curriculum import check_bounds
from verl_agentic.sampling.gating.replay_memory import GroupReplay, ReplayGroup, check_replayable, is_worth_replaying
from verl_agentic.sampling.prompts.pass_rates import task_values
from verl_agentic.verl.batches.row_store import PLAYED_UID, read_columns, split_key
from verl_agentic.verl.checkpoints.healthy_checkpoints import is_kept
from verl_agentic.verl.replay_buffer.finished_groups import FinishedGroup

Weight = Literal["reward", "value"]
_FILE = "replay.pt"
logger = logging.getLogger(__name__)


class ReplayOptions(Settings):
    """The section `sampler_kwargs.replay`. No source gives its values; the defaults are ours."""

    capacity: int = setting(min=1)
    """Maximum number of groups in the memory."""
    share: float = setting(0.5, above=0, below=1)
    """Maximum share of a batch that is replayed, rounded down."""
    priority_share: float = setting(0.5, min=0, max=1)
    """Probability that a group is drawn by weight. Other draws go in order."""
    weight: Weight = "reward"
    """A group's mean reward; or `value`, VSPO's `(max_reward - mean) * std`, which with `priority_share: 1`, the gate
    `zero_variance` and the estimator `per_use` is its replacement of prompts without advantage. It draws from groups of
    earlier steps.

    Paper: https://arxiv.org/abs/2512.07478"""
    max_reward: float = setting(1.0, above=0)
    """Maximum reward of an episode, for `weight: value`."""
    max_lag: int | None = setting(4, min=1)
    """Maximum age of a group in versions of the weights. None: no limit."""
    certainty_bounds: Sequence[float] | None = None
    """`[low, high]`: a group is kept if 1 / perplexity of its sampled tokens is in `(low, high]` (WebRL: `[0.5,
    0.95]`). WebRL uses single actions of successes under the current weights; here it is the whole group under the
    weights that sampled it. None: every group is kept.

    Paper: https://arxiv.org/abs/2411.02337"""
    seed: int = 0
    """Seed of the draws."""

    def check_together(self) -> None:
        check_bounds(self.certainty_bounds, name="certainty_bounds")
        if self.max_reward != 1 and self.weight != "value":
            raise ConfigError(f"max_reward needs weight: value, got {self.max_reward} with {self.weight!r}; unset it")


@dataclass(frozen=True, kw_only=True)
class StoredGroup:
    """The rows of a group."""

    suffixes: tuple[str, ...]
    """Suffixes of their keys, after the uid."""
    rows: tuple[dict[str, Any], ...]
    tags: tuple[Mapping[str, Any], ...]
    judged: FinishedGroup
    """The gates' decision on it."""


class ReplayedGroups:
    """The memory of a replay buffer, and its groups in the queue."""

    def __init__(self, options: ReplayOptions) -> None:
        """Makes an empty one."""
        self._options = options
        self._memory: GroupReplay[StoredGroup] = GroupReplay(
            options.capacity, priority_share=options.priority_share, max_lag=options.max_lag, seed=options.seed
        )
        self._drawn: list[ReplayGroup[StoredGroup]] | None = None
        """Drawn for the current batch and not yet put back; None: not drawn yet."""
        self.in_queue: dict[str, ReplayGroup[StoredGroup]] = {}
        """By its new uid."""

    def __len__(self) -> int:
        return len(self._memory)

    def keep(self, batch: Any, judged: Mapping[str, FinishedGroup]) -> None:
        """Copies the rows of a batch's new groups.

        Args:
            batch: verl's batch as sampled, before any computation.
            judged: decisions on groups, by uid.

        Raises:
            DataError: rows lack columns for replay.
        """
        places: dict[str, list[int]] = defaultdict(list)
        for place, key in enumerate(batch.keys):
            # A copy whose original has left the memory is not kept.
            if (uid := split_key(key)[0]) in judged and PLAYED_UID not in batch.tags[place]:
                places[uid].append(place)
        if not places:
            return
        rows = _fetch_rows(
            [batch.keys[place] for of_group in places.values() for place in of_group], batch.partition_id
        )
        for uid, of_group in places.items():
            group_rows = tuple(rows.pop(batch.keys[place]) for place in of_group)
            tags = tuple(dict(batch.tags[place]) for place in of_group)
            for row, tag in zip(group_rows, tags, strict=True):
                check_replayable(row, tag)
            suffixes = tuple(batch.keys[place][len(uid) + 1 :] for place in of_group)
            if not self._is_worth_keeping(suffixes, group_rows):
                continue
            self._memory.add(
                uid,
                version=min(int(tag["min_global_steps"]) for tag in tags),
                weight=_compute_weight(_sum_rewards(suffixes, group_rows), self._options),
                rows=StoredGroup(suffixes=suffixes, rows=group_rows, tags=tags, judged=judged[uid]),
            )

    def _is_worth_keeping(self, suffixes: tuple[str, ...], rows: tuple[dict[str, Any], ...]) -> bool:
        if self._options.certainty_bounds is None:
            return True
        low, high = self._options.certainty_bounds
        return bool(is_worth_replaying(np.array([_compute_certainty(suffixes, rows)]), low=low, high=high)[0])

    def draw(self, *, step: int, batch_size: int) -> ReplayGroup[StoredGroup] | None:
        """Returns a group to replay in that step; None if the batch has its share or the memory is empty."""
        if self._drawn is None:
            count = max(0, int(self._options.share * batch_size) - len(self.in_queue))
            drawn = self._memory.draw(count, version=step - 1)
            queued = {group.key for group in self.in_queue.values()}
            self._drawn = [group for group in drawn if group.key not in queued]
            _uncount_uses(group for group in drawn if group.key in queued)
        return self._drawn.pop(0) if self._drawn else None

    def put_back(self, group: ReplayGroup[StoredGroup], *, step: int, partition_id: str) -> str:
        """Puts a group into the queue as finished in that step; returns its uid there."""
        uid, stored = str(uuid4()), group.rows
        rows = [{**row, "uid": uid} if "uid" in row else row for row in stored.rows]
        tq.kv_batch_put(
            keys=[f"{uid}_{suffix}" for suffix in stored.suffixes],
            partition_id=partition_id,
            fields=list_of_dict_to_tensordict(rows),
            tags=[{**tag, "uses": group.uses, PLAYED_UID: group.key} for tag in stored.tags],
        )
        # verl takes groups of earlier steps first, so new groups come before replayed ones.
        state = {"is_prompt": True, "status": "finished", "global_steps": step + 1}
        tq.kv_batch_put(keys=[uid], partition_id=partition_id, tags=[state])
        self.in_queue[uid] = group
        return uid

    def trained(self, uids: Iterable[str]) -> None:
        """Records that these replayed groups are in a batch."""
        for uid in uids:
            self.in_queue.pop(uid, None)

    def take_out(self, uids: set[str]) -> None:
        """Records that groups leave the queue unused."""
        _uncount_uses(self.in_queue.pop(uid) for uid in uids & self.in_queue.keys())

    def end_batch(self) -> None:
        """Ends a full batch; drawn but unneeded groups count as unused."""
        _uncount_uses(self._drawn or ())
        self._drawn = None

    def save(self, folder: Path) -> None:
        """Writes the memory into the folder of a checkpoint."""
        in_queue = {uid: group.key for uid, group in self.in_queue.items()}
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"memory": self._memory.state_dict(), "in_queue": in_queue}, folder / _FILE)

    def load(self, folder: Path, *, has_queue: bool) -> None:
        """Loads the memory of a checkpoint.

        Args:
            folder: folder of the checkpoint; without a memory, this one stays empty, with a warning.
            has_queue: whether the queue was restored too.
        """
        if not (folder / _FILE).exists():
            logger.warning(f"the checkpoint has no replayed groups, got no {folder / _FILE}; the memory begins empty")
            return
        # A checkpoint is trusted like code, as is verl's data.pt.
        state = torch.load(folder / _FILE, weights_only=False)
        self._memory.load_state_dict(state["memory"])
        queued = {uid: group for uid, key in state["in_queue"].items() if (group := self._memory.get(key))}
        if has_queue:
            self.in_queue = queued
        else:
            _uncount_uses(queued.values())


def forget_memories(folder: Path, *, max_kept: int) -> None:
    """Removes the memories of all checkpoints except the last `max_kept` steps and healthy ones."""
    steps = {path: path.parent.name.removeprefix("global_step_") for path in folder.glob(f"global_step_*/{_FILE}")}
    memory_files = sorted((path for path, step in steps.items() if step.isdecimal()), key=lambda path: int(steps[path]))
    for path in memory_files[:-max_kept]:
        if not is_kept(path):
            path.unlink(missing_ok=True)


def check_trainer(config: Any) -> None:
    """Raises ConfigError for trainers that do not support replay."""
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        raise ConfigError(
            "replayed rows keep the log-probs of the weights that sampled them, got "
            "actor_rollout_ref.rollout.calculate_log_probs=false; set it to true"
        )
    correction = OmegaConf.select(config, "algorithm.rollout_correction") or {}
    if correction.get("bypass_mode"):
        raise ConfigError(
            "replayed rows need old_log_probs of the weights that are trained, got "
            "algorithm.rollout_correction.bypass_mode=true, which takes those of the weights that sampled them; "
            "switch it off"
        )
    if not correction.get("rollout_is"):
        logger.warning(
            "replayed rows are trained on as if the present weights had sampled them; "
            "algorithm.rollout_correction.rollout_is=token would weigh them"
        )


def _uncount_uses(groups: Any) -> None:
    for group in groups:
        group.uses -= 1


def _fetch_rows(keys: list[str], partition_id: str) -> dict[str, dict[str, Any]]:
    """Returns all columns of rows, by key."""
    columns = read_columns(keys, partition_id=partition_id)

    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, torch.Tensor) else value  # a view would keep the whole batch alive

    return {key: {name: copy(values[place]) for name, values in columns.items()} for place, key in enumerate(keys)}


def _sum_rewards(suffixes: tuple[str, ...], rows: tuple[dict[str, Any], ...]) -> list[float]:
    """Returns the total reward of each session, without void sessions and greedy baselines."""
    sums: dict[str, float] = defaultdict(float)
    for suffix, row in zip(suffixes, rows, strict=True):
        if _says_something(suffix, row):
            sums[suffix.rsplit("_", 1)[0]] += float(row["rm_scores"].float().sum())
    return list(sums.values())


def _says_something(suffix: str, row: Mapping[str, Any]) -> bool:
    session = suffix.rsplit("_", 1)[0]
    return not _read_reward_info(row).get("void") and int(row.get(GREEDY_SESSION, -1)) != int(session)


def _read_reward_info(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return (row.get("extra_fields") or {}).get("reward_extra_info") or {}


def _compute_certainty(suffixes: tuple[str, ...], rows: tuple[dict[str, Any], ...]) -> float:
    """Returns 1 / perplexity of a group's sampled tokens; NaN without any."""
    policy_rows = [
        row
        for suffix, row in zip(suffixes, rows, strict=True)
        if _says_something(suffix, row) and not _read_reward_info(row).get("external")
    ]
    sampled = [row["rollout_log_probs"].float()[row["response_mask"].bool()] for row in policy_rows]
    return float(torch.cat(sampled).mean().exp()) if sampled else math.nan


def _compute_weight(earned: list[float], options: ReplayOptions) -> float:
    """Returns the weight of a group for draws; 0 if it is negative or not finite."""
    if not earned:
        return 0.0
    weight = mean = float(np.mean(earned))
    if options.weight == "value":
        (weight,) = task_values(np.array([mean]), np.array([np.std(earned)]), max_reward=options.max_reward).tolist()
    return weight if math.isfinite(weight) and weight > 0 else 0.0
