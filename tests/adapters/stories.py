"""Episodes as they were played, and the batch that verl's trainer holds of them, however they are cut into rows."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from stored_rows import StoredRows, algorithm, to_data
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import trainer_base

from verl_agentic.credit.credit.step_groups import steps_of
from verl_agentic.credit.trainer_context import TrainerContext, use_context

ADVANTAGES: Any = cast("Any", trainer_base).compute_advantage_for_multi_trajectories
WIDTH = 24
_NUMBERS = ("values", "old_log_probs", "rollout_log_probs", "sum_pi_squared")


@dataclass(frozen=True, kw_only=True)
class Story:
    """One session: what was sampled depends on `seed` and `turns` alone, whatever becomes of it."""

    uid: str = "u"
    turns: tuple[int, ...] = (2, 1)
    """Sampled tokens of every turn."""
    outcome: float = 0.0
    """Paid at the end."""
    earlier: float = 0.0
    """Paid at the end of the first turn."""
    seed: int = 0
    cuts: tuple[int, ...] = ()
    """Turns that begin a new row."""
    sides: tuple[int, ...] = ()
    """Sampled tokens of the rows of sub-agents."""
    is_rejected: bool = False
    """Whether the last row has lost its mask."""
    is_void: bool = False
    is_guided: bool = False
    """Whether its prompt has the environment's guidance."""

    @property
    def total(self) -> float:
        return self.outcome + self.earlier


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of verl's trainer, the rows that the queue stores, and the session of each row."""

    keys: list[str]
    data: DataProto
    columns: dict[str, Any]
    queue: StoredRows


def _rows(story: Story) -> list[list[tuple[int, bool, int, int]]]:
    """Returns rows of `(turn, sampled, source, token)`; source 0: the agent's own, or the number of the sub-agent."""
    sides = [[(0, True, 1 + n, token) for token in range(length)] for n, length in enumerate(story.sides)]
    own: list[list[tuple[int, bool, int, int]]] = [[]]
    for turn, length in enumerate(story.turns):
        if turn in story.cuts:
            own.append([])
        elif turn:
            own[-1].append((turn - 1, False, 0, 0))
        own[-1] += [(turn, True, 0, token) for token in range(length)]
    return [*sides, *own]


def batch_of(stories: Sequence[Story], *, dtype: torch.dtype = torch.float32, forget: bool = False) -> Batch:
    """Returns the batch of sessions.

    Args:
        stories: sessions of a prompt are those with one uid.
        dtype: of the rewards.
        forget: whether the queue knows no more of what was rejected than the batch.
    """
    queue, keys, lists = StoredRows(), [], {name: [] for name in ("rewards", "mask", "turn_ids", *_NUMBERS)}
    sides, steps, totals, guided = [], [], [], []
    for number, story in enumerate(stories):
        numbers = torch.rand((len(_NUMBERS), 4, 8, 8), generator=torch.Generator().manual_seed(story.seed))
        rows = _rows(story)
        for index, row in enumerate(rows):
            key, is_last, is_side = f"{story.uid}_{number}_{index}", index + 1 == len(rows), index < len(story.sides)
            sampled = [int(is_sampled and not story.is_void) for _, is_sampled, _, _ in row]
            rewards = [0.0] * len(row)
            if not is_side and story.earlier and row[0][0] == 0:
                rewards[story.turns[0] - 1] += story.earlier
            if is_last:
                rewards[-1] += story.outcome
            mask = [0] * len(row) if is_last and story.is_rejected else sampled
            place = "side" if is_side else "last" if is_last else "earlier"
            queue.put_row(key, rewards, mask=mask if forget else sampled, place=place)
            keys.append(key)
            lists["rewards"].append(rewards)
            lists["mask"].append(mask)
            lists["turn_ids"].append([turn for turn, _, _, _ in row])
            for which, name in enumerate(_NUMBERS):
                sign = -1 if "log_probs" in name else 1
                lists[name].append(
                    [sign * float(numbers[which, source, turn, token]) for turn, _, source, token in row]
                )
            sides.append(is_side)
            steps.append([] if is_side else sorted({(turn, turn % 2, story.seed % 2) for turn, _, _, _ in row}))
            totals.append(story.total)
            guided.append(float(story.is_guided))
    padded = {name: torch.tensor([row + [0] * (WIDTH - len(row)) for row in rows]) for name, rows in lists.items()}
    data = to_data(
        keys,
        padded.pop("rewards"),
        padded.pop("mask"),
        **{name: padded[name] for name in ("values", "old_log_probs", "rollout_log_probs")},
    )
    data.batch["token_level_rewards"] = data.batch["token_level_rewards"].to(dtype)
    total_B = data.batch["token_level_rewards"].new_tensor(totals).float()
    columns = {
        "turn_ids_BT": padded["turn_ids"],
        "sum_pi_squared_BT": padded["sum_pi_squared"] + 1.0,
        "is_side_B": torch.tensor(sides),
        "steps": steps_of(steps),
        "parts": {"acc": total_B, "constant": torch.full_like(total_B, 0.9), "guided": torch.tensor(guided)},
        "baseline_B": torch.full_like(total_B, 0.5),
        "shared_BT": torch.full((len(keys), WIDTH), -1),
        "uses_B": torch.ones(len(keys), dtype=torch.int64),
    }
    return Batch(keys=keys, data=data, columns=columns, queue=queue)


def advantages_of(
    name: str, batch: Batch, *, queue: Any, with_trainer: bool = True, n: int = 4, **options: Any
) -> dict[tuple[int, int], torch.Tensor]:
    """Returns session and row -> `[T]` advantages, as verl's trainer or one of ours (`with_trainer`) asks for them.

    Args:
        name: of the estimator.
        batch: as `batch_of` makes it.
        queue: the stand-in that verl's trainer reads; takes the rows.
        with_trainer: whether what our trainers hand over is there.
        n: `rollout.n`.
        options: of the section `algorithm`.
    """
    queue.rows, queue.tags = batch.queue.rows, batch.queue.tags
    config = algorithm(gdpo_reward_keys=["acc", "constant"], rollout_correction={"rollout_rs": "token_k1"}, **options)
    arguments = {"adv_estimator": name, "gamma": config.gamma, "lam": config.lam, "num_repeat": n, "config": config}
    arguments["norm_adv_by_std_in_grpo"] = config.norm_adv_by_std_in_grpo
    data = copy.deepcopy(batch.data)
    if with_trainer:
        with use_context(TrainerContext(columns=dict(batch.columns))):
            data = ADVANTAGES(data, batch_keys=batch.keys, **arguments)
    else:
        data = ADVANTAGES(data, batch_keys=batch.keys, **arguments)
    places = [tuple(map(int, key.rsplit("_", 2)[1:])) for key in batch.keys]
    return dict(zip(cast("Any", places), data.batch["advantages"], strict=True))


def changed(stories: Sequence[Story], **changes: Any) -> list[Story]:
    """Returns the sessions with the first one changed."""
    return [replace(stories[0], **changes), *stories[1:]]
