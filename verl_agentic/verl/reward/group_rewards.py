"""Patches verl: components that see the whole group score it after verl has sampled it, before advantages.

Wraps `sample` of `ReplayBuffer` and `ReplayBufferAsync`; adds `ReplayBuffer.make_group_rewards`.

A rubric's other components ran in verl's reward workers, in parallel to rollouts. ReMax's greedy session is scored with
its siblings in a second pass; the siblings are scored without it, unless there is only one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.score import Score, combine
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import PENDING, PLACE, from_pending, row_numbers, score_tokens
from verl_agentic.verl.batches.row_store import read_columns, session_of, split_key
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import add, wrap

_FIELDS = ["extra_fields", "rm_scores", "response_mask", "turn_ids"]


@dataclass
class Row:
    """A training row of an episode."""

    key: str
    extra: dict[str, Any]
    rewards: torch.Tensor
    """[R] float"""
    mask: torch.Tensor
    """[R] 1 on tokens that the policy sampled."""
    turn_ids: torch.Tensor
    """[R]"""
    is_greedy: bool
    """Whether it is a baseline, which is not trained."""


@wrap(replay_buffer.ReplayBuffer, "sample")
@wrap(replay_buffer.ReplayBufferAsync, "sample")
def _sample_and_score(
    sample: Any, self: Any, global_steps: int, partition_id: str, batch_size: int
) -> tuple[Any, dict[str, Any]]:
    batch, metrics = sample(self, global_steps, partition_id, batch_size)
    if partition_id != "val" and (group_rewards := state_of(self).group_rewards) is not None:
        group_rewards.score(batch.keys, partition_id)
    return batch, metrics


class GroupRewards:
    """A rubric with components that see whole groups, in the trainer."""

    def __init__(self, rubric: Rubric) -> None:
        """Starts nothing yet."""
        self._scorer = Scorer(rubric)
        self._loop = asyncio.new_event_loop()  # one for all steps: the scorer's locks belong to it

    def close(self) -> None:
        self._scorer.close()
        self._loop.close()

    @classmethod
    def of(cls, config: Any) -> GroupRewards | None:
        """Returns the group rewards; None without components that see groups."""
        reward: Any = OmegaConf.to_container(config.reward, resolve=True)
        if (reward.get("reward_manager") or {}).get("name") != "rubric":
            return None
        rubric = Rubric.from_config(reward)
        if not rubric.group_terms:
            return None
        return cls(rubric)

    def score(self, keys: Sequence[str], partition_id: str) -> None:
        """Scores the groups of a batch and puts rewards and numbers in their rows."""
        sessions = _group_by_session(_fetch_rows(keys, partition_id))
        groups: dict[str, list[list[Row]]] = defaultdict(list)
        for (uid, _), rows in sessions.items():
            if rows[-1].extra.get(PENDING) is not None:
                groups[uid].append(rows)
        if not groups:
            return
        changed = [
            row for rows in self._loop.run_until_complete(self._finish_groups(list(groups.values()))) for row in rows
        ]
        fields = [
            {"extra_fields": r.extra, "rm_scores": r.rewards, "response_mask": r.mask, "loss_mask": r.mask}
            for r in changed
        ]
        tq.kv_batch_put(
            keys=[row.key for row in changed], partition_id=partition_id, fields=list_of_dict_to_tensordict(fields)
        )

    async def _finish_groups(self, groups: list[list[list[Row]]]) -> list[list[Row]]:
        finished = await asyncio.gather(*(self._finish_group(group) for group in groups))
        return [rows for group in finished for rows in group]

    async def _finish_group(self, group: list[list[Row]]) -> list[list[Row]]:
        group = sorted(group, key=lambda rows: rows[-1].is_greedy)
        pending_sessions = [from_pending(rows[-1].extra[PENDING]) for rows in group]
        num_own = sum(not rows[-1].is_greedy for rows in group)
        # A single session needs its baseline to be compared with.
        scores = await self._score_sessions(pending_sessions[:num_own]) if num_own > 1 else []
        if num_own <= 1:
            scores = await self._score_sessions(pending_sessions)
        elif num_own < len(group):
            scores += (await self._score_sessions(pending_sessions))[num_own:]
        for rows, (_, verdicts), score in zip(group, pending_sessions, scores, strict=True):
            _replace_score(rows, combine(self._scorer.rubric, verdicts, is_pending=True), score)
        return group

    async def _score_sessions(self, pending_sessions: Sequence[tuple[Any, Any]]) -> list[Score]:
        return await self._scorer.finish(
            [sample for sample, _ in pending_sessions], [verdicts for _, verdicts in pending_sessions]
        )


def _replace_score(rows: list[Row], old: Score, new: Score) -> None:
    """Replaces the score of an episode in its rows."""
    for row in rows:
        place, turn_ids, mask = row.extra[PLACE], row.turn_ids.tolist(), row.mask.tolist()
        if new.void is not None:
            row.rewards, row.mask = torch.zeros_like(row.rewards), torch.zeros_like(row.mask)
        else:
            new_rewards, old_rewards = (
                torch.tensor(score_tokens(score, turn_ids=turn_ids, mask=mask, place=place)) for score in (new, old)
            )
            row.rewards = row.rewards + new_rewards - old_rewards
        row.extra = {
            **row.extra,
            PENDING: None,
            "error": new.void or row.extra.get("error", ""),
            "reward_extra_info": {**row.extra["reward_extra_info"], **row_numbers(new)},
        }


def _fetch_rows(keys: Sequence[str], partition_id: str) -> list[Row]:
    columns = read_columns(keys, partition_id=partition_id, names=[*_FIELDS, GREEDY_SESSION])
    greedy = [int(place) for place in columns[GREEDY_SESSION]] if GREEDY_SESSION in columns else [None] * len(keys)
    return [
        Row(
            key=key,
            extra=extra,
            rewards=rewards,
            mask=mask,
            turn_ids=turn_ids,
            is_greedy=int(split_key(key)[1]) == baseline,
        )
        for key, baseline, extra, rewards, mask, turn_ids in zip(
            keys, greedy, *(columns[name] for name in _FIELDS), strict=True
        )
    ]


def _group_by_session(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Returns the rows of every episode, in order."""
    sessions: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: split_key(row.key)[2]):
        sessions[session_of(row.key)].append(row)
    return sessions


add(replay_buffer.ReplayBuffer, "make_group_rewards", staticmethod(GroupRewards.of))
