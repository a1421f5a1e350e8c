"""The replay buffer: a shorter wait between polls, and the episodes' numbers as metrics of the batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import queues
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from verl_agentic.verl.batches import row_store
from verl_agentic.verl.replay_buffer import episode_buffer


def buffer(**sampler_kwargs: Any) -> ReplayBuffer:
    return ReplayBuffer(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create(sampler_kwargs),
    )


def test_the_poll_interval_is_the_configured_one_and_verls_own_without() -> None:
    assert buffer(poll_interval_s=0.05).poll_interval == 0.05
    assert buffer().poll_interval == 2.0


class Queue:
    """Stands in for TransferQueue at the one function that is used of it."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows
        self.asked: list[str] = []

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        assert (partition_id, select_fields) == ("train", ["extra_fields"])
        self.asked = keys
        if not all(key in self.rows for key in keys):
            return TensorDict({}, batch_size=[len(keys)])
        return TensorDict({"extra_fields": NonTensorStack(*(self.rows[key] for key in keys))}, batch_size=[len(keys)])


def rows(**numbers: dict[str, Any]) -> dict[str, Any]:
    return {key: {"reward_extra_info": value} for key, value in numbers.items()}


def metrics(monkeypatch: pytest.MonkeyPatch, stored: dict[str, Any], keys: list[str]) -> tuple[dict[str, float], Queue]:
    queue = Queue(stored)
    monkeypatch.setattr(row_store.tq, "kv_batch_get", queue.kv_batch_get)
    return episode_buffer.mean_numbers(list(episode_buffer._fetch_episodes(keys, "train").values())), queue


def test_metrics_are_means_over_episodes_not_over_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Session 0 of group u_1 has 11 rows, the last of which (10, not 9) counts; session 1 has one.
    stored = rows(
        **{f"u_1_0_{i}": {"acc": 9.0} for i in range(10)}, **{"u_1_0_10": {"acc": 1.0}, "u_1_1_0": {"acc": 0.0}}
    )
    found, queue = metrics(monkeypatch, stored, list(stored))
    assert found == {"episode/episodes": 2.0, "episode/acc": 0.5}
    assert sorted(queue.asked) == ["u_1_0_10", "u_1_1_0"]


def test_numbers_are_averaged_over_the_rows_that_have_them_and_texts_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = rows(u_0_0={"acc": 1.0, "why": "text", "ok": True}, u_1_0={"acc": 0.0, "extra": 4}, u_2_0={})
    found, _ = metrics(monkeypatch, stored, list(stored))
    assert found == {"episode/episodes": 3.0, "episode/acc": 0.5, "episode/ok": 1.0, "episode/extra": 4.0}


def test_parts_of_the_reward_are_averaged_over_the_episodes_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[str, Any] = rows(u_0_0={"acc": 1.0}, u_1_0={"acc": 0.0}, u_2_0={"acc": 0.5})
    stored["u_0_0"]["reward_parts"] = {"pass_rate": 0.25}
    stored["u_1_0"]["reward_parts"] = {"pass_rate": 0.75}
    found, _ = metrics(monkeypatch, stored, list(stored))
    assert found == {"episode/episodes": 3.0, "episode/acc": 0.5, "episode/reward/pass_rate": 0.5}


def test_void_episodes_have_no_outcome_and_no_reward_but_count_in_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"acc": 1.0, "score": 1.0, "weighted/env": 1.0, "void": 0.0, "stop/timeout": 0.0}
    void = {"acc": 0.0, "score": 0.0, "weighted/env": 0.0, "void": 1.0, "stop/timeout": 1.0}
    found, _ = metrics(monkeypatch, rows(u_0_0=own, u_1_0=void), ["u_0_0", "u_1_0"])
    halves = {"episode/void": 0.5, "episode/stop/timeout": 0.5}
    ones = dict.fromkeys(("episode/acc", "episode/score", "episode/weighted/env"), 1.0)
    assert found == {"episode/episodes": 2.0, **ones, **halves}


def test_other_agent_loops_and_empty_batches_have_no_episode_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics(monkeypatch, {}, ["u_0_0"])[0] == {}
    assert metrics(monkeypatch, {}, [])[0] == {}
    assert metrics(monkeypatch, {"u_0_0": {"turns": 1}}, ["u_0_0"])[0] == {}


@pytest.mark.parametrize(("partition", "has_metrics"), [("train", True), ("val", False)])
def test_a_sampled_training_batch_brings_them_along(
    monkeypatch: pytest.MonkeyPatch, partition: str, has_metrics: bool
) -> None:
    queue = Queue(rows(u_0_0={"acc": 1.0}))
    monkeypatch.setattr(row_store.tq, "kv_batch_get", queue.kv_batch_get)
    sampled = KVBatchMeta(keys=["u_0_0"], tags=[{}], partition_id=partition)
    batch, found = episode_buffer._sample_with_numbers(
        lambda self, steps, partition_id, size: (sampled, {"verl": 1.0}), SimpleNamespace(), 1, partition, 1
    )
    assert batch is sampled
    assert found == {"verl": 1.0} | ({"episode/episodes": 1.0, "episode/acc": 1.0} if has_metrics else {})


@given(st.permutations([f"{uid}_{session}_{row}" for uid in "abcd" for session in range(3) for row in range(2)]))
def test_updates_get_whole_groups_in_whatever_order_sessions_ended(ended: list[str]) -> None:
    queue = queues.Queue()
    with pytest.MonkeyPatch.context() as patch:
        queues.install(queue, patch)
        for uid in "abcd":
            queue.put_prompt(uid, "finished")
        for key in ended:
            queue.tags["train"][key] = {"status": "success", "response_len": 1, "of": key}
            queue.rows[key] = {"extra_fields": {"reward_extra_info": {"acc": 1.0}}}
        patch.setattr(row_store.tq, "kv_batch_get", queue.kv_batch_get)
        batch, _ = buffer().sample(1, "train", 4)
    assert sorted(batch.keys) == sorted(ended)
    assert [tag["of"] for tag in batch.tags] == batch.keys
    for update in range(4):
        rows_of_update = batch.keys[6 * update : 6 * (update + 1)]
        assert len({key.partition("_")[0] for key in rows_of_update}) == 1
