"""Losses that compare siblings get whole groups, on verl's own balancing and micro-batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu
from verl.workers.engine.utils import prepare_micro_batches

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.batches.row_store import split_key
from verl_agentic.verl.extensions.methods.trainer.whole_groups import keep_groups_whole

# As verl balances them: siblings are apart.
LENGTHS = {"a_0_0": 9, "b_1_0": 2, "c_0_0": 5, "d_0_0": 7, "b_0_0": 3, "a_1_0": 8, "d_1_0": 6, "c_1_0": 4}


def to_batch(lengths: dict[str, int]) -> KVBatchMeta:
    tags = [{"seq_len": length} for length in lengths.values()]
    return KVBatchMeta(keys=list(lengths), partition_id="train", tags=tags, fields=[], extra_info={})


def uids(keys: Sequence[str]) -> list[str]:
    return [split_key(key)[0] for key in keys]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_every_rank_gets_whole_groups(num_ranks: int) -> None:
    batch = to_batch(LENGTHS)
    assert keep_groups_whole(batch, num_ranks=num_ranks, groups_per_update=4) == 2
    assert sorted(batch.keys) == sorted(LENGTHS)
    assert [tag["seq_len"] for tag in batch.tags] == [LENGTHS[key] for key in batch.keys]
    share = len(batch.keys) // num_ranks
    ranks = [uids(batch.keys[start : start + share]) for start in range(0, len(batch.keys), share)]
    for rank in ranks:
        assert all(first == second for first, second in zip(rank[::2], rank[1::2], strict=True))
    assert len({uid for rank in ranks for uid in set(rank)}) == sum(len(set(rank)) for rank in ranks)


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations("abcd")])
def test_ranks_get_similar_numbers_of_tokens(order: str) -> None:
    lengths = dict(zip(order, (90, 80, 2, 1), strict=True))
    batch = to_batch({f"{uid}_{session}_0": lengths[uid] for uid in "abcd" for session in (0, 1)})
    keep_groups_whole(batch, num_ranks=2, groups_per_update=4)
    assert len(set(order[:2]) & set(uids(batch.keys[:4]))) == 1


@pytest.mark.parametrize(
    "lengths",
    [
        {key: length for key, length in LENGTHS.items() if key != "c_1_0"},  # a group of another size
        {**LENGTHS, "e_0_0": 3, "e_1_0": 3},  # five groups for two ranks
        {**LENGTHS, "a_0_1": 3},  # an episode of two rows
    ],
)
def test_unequal_groups_stay_as_verl_balanced_them(lengths: dict[str, int]) -> None:
    batch = to_batch(lengths)
    assert keep_groups_whole(batch, num_ranks=2, groups_per_update=4) == 1
    assert list(batch.keys) == list(lengths)


def test_updates_that_split_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="ppo_mini_batch_size"):
        keep_groups_whole(to_batch(LENGTHS), num_ranks=2, groups_per_update=3)


@pytest.mark.parametrize(
    "sizes", [{"use_dynamic_bsz": True, "max_token_len_per_gpu": 18}, {"micro_batch_size_per_gpu": 1}]
)
def test_verls_micro_batches_have_whole_groups(sizes: dict[str, int]) -> None:
    batch = to_batch(LENGTHS)
    size = keep_groups_whole(batch, num_ranks=1, groups_per_update=4)
    rows = [torch.zeros(LENGTHS[key], dtype=torch.int64) for key in batch.keys]
    group_B = torch.tensor([ord(uid) for uid in uids(batch.keys)])
    tokens = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    data = TensorDict({"input_ids": tokens, "group": group_B}, batch_size=len(rows))
    tu.assign_non_tensor(data, **{"use_dynamic_bsz": False, "force_group_size": size, **sizes})
    micro_batches, _ = prepare_micro_batches(data)
    seen = [set(micro["group"].tolist()) for micro in micro_batches]
    assert len(micro_batches) > 1
    assert sum(len(groups) for groups in seen) == 4, "no group is in two micro-batches"
