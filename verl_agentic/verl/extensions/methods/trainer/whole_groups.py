"""Order of rows for losses that compare siblings: whole groups on one rank, and in one micro-batch.

verl balances rows over ranks and micro-batches by their lengths, which splits groups. Its key `force_group_size` keeps
successive rows in one micro-batch.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.batches.row_store import split_key
from verl_agentic.verl.trainer.trainer_part import TrainerPart


class WholeGroups(TrainerPart):
    """Keeps groups whole for losses that compare siblings."""

    _group_rows = 1
    """Rows of every group of the batch; 1 if groups are not kept whole."""

    def after_balance(self, trainer: Any, batch: Any) -> None:
        """See `keep_groups_whole`."""
        if self.loss_needs("group_size_B"):
            self._group_rows = keep_groups_whole(
                batch,
                num_ranks=max(trainer.actor_rollout_wg._dispatch_info["actor"]) + 1,
                groups_per_update=self.config.actor_rollout_ref.actor.ppo_mini_batch_size,
            )

    def before_update(self, batch: Any) -> None:
        """Keeps the rows of a group in one micro-batch."""
        if self._group_rows > 1:
            batch.extra_info["force_group_size"] = self._group_rows


def keep_groups_whole(batch: Any, *, num_ranks: int, groups_per_update: int) -> int:
    """Reorders a batch so that every rank gets whole groups in every update, with similar numbers of tokens.

    Args:
        batch: verl's, reordered in place.
        num_ranks: data-parallel ranks, among which verl divides the batch in order.
        groups_per_update: `ppo_mini_batch_size`.

    Returns:
        The number of rows of every group. 1, and the batch unchanged, if groups differ in size: padding, or episodes of
        several rows.

    Raises:
        ConfigError: the groups of an update cannot be divided among the ranks.
    """
    places: dict[str, list[int]] = {}
    for place, key in enumerate(batch.keys):
        places.setdefault(split_key(key)[0], []).append(place)
    groups = list(places.values())
    size = len(groups[0]) if groups else 1
    if any(len(group) != size for group in groups) or len(groups) % num_ranks:
        return 1
    if groups_per_update % num_ranks:
        raise ConfigError(
            "the loss compares the rows of a group, so that every rank needs whole groups, got "
            f"actor.ppo_mini_batch_size={groups_per_update} for {num_ranks} data-parallel ranks; set it to a multiple"
        )
    workloads = calculate_workload(torch.tensor([tag["seq_len"] for tag in batch.tags])).tolist()
    of_groups = [sum(workloads[place] for place in group) for group in groups]
    shares: Any = get_seqlen_balanced_partitions(of_groups, k_partitions=num_ranks, equal_size=True)
    batch.reorder([place for share in shares for number in share for place in groups[number]])
    return size
