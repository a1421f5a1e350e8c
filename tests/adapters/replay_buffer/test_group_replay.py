"""Groups that are trained on again: in the place of what gates drop, as old as they are, and not without end."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from queues import Queue, install

from verl_agentic.base.errors import ConfigError, DataError, StarvationError
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.verl.batches.row_store import PLAYED_UID
from verl_agentic.verl.replay_buffer.gated_buffer import GatedReplayBuffer
from verl_agentic.verl.replay_buffer.group_replay import forget_memories

REPLAY = "training/gate/replay/"
MODES = ("sync", "colocate_async", "separate_async")


class Play:
    """The trainer: prompts that are handed out are played at the next poll."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.step = 1
        self.accs: list[float] = [1.0, 0.0]
        self.handed_out = 0
        self.pending: list[str] = []
        self.num_polls = 0

    def refill(self, count: int) -> None:
        for _ in range(count):
            self.handed_out += 1
            self.pending.append(f"new{self.handed_out}")
            self.queue.put_prompt(self.pending[-1], "pending", step=self.step)

    def sleep(self, seconds: float) -> None:
        self.num_polls += 1
        assert self.num_polls < 300, "it never ends"
        for uid in self.pending:
            put(self.queue, uid, self.accs, step=self.step)
        self.pending = []

    @staticmethod
    def time() -> float:
        return 0.0


def put(queue: Queue, uid: str, accs: list[float], *, step: int = 1, rewards: list[float] | None = None) -> None:
    columns = [
        {"uid": uid, "rollout_log_probs": torch.tensor([-0.5, -1.0, -1.5, -0.1 * len(uid)]), "prompts": torch.arange(n)}
        for n in range(2, 2 + len(accs))
    ]
    queue.put_group(uid, accs, step=step, rewards=rewards, columns=columns)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    install(queue, monkeypatch)
    return queue


@pytest.fixture
def play(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Play:
    play = Play(queue)
    monkeypatch.setattr("verl.trainer.ppo.v1.replay_buffer.time", play)
    return play


def buffer(
    play: Play,
    mode: str = "sync",
    *,
    gates: Any = ("zero_variance",),
    keep_surplus: int = 0,
    window: int = 128,
    **replay: Any,
) -> Any:
    return GatedReplayBuffer(
        trainer_mode=mode,
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create(
            {"gates": list(gates), "keep_surplus": keep_surplus, "window": window, "replay": {"capacity": 8, **replay}}
        ),
        refill_fn=play.refill,
    )


def sample(gated: Any, play: Play, step: int, batch_size: int) -> tuple[Any, dict[str, float]]:
    """Returns a batch that has left the queue, as after a step."""
    play.step = step
    batch, metrics = gated.sample(step, "train", batch_size)
    batch.rows = {key: play.queue.rows[key] for key in batch.keys}
    play.queue.kv_clear(keys=batch.keys, partition_id="train")
    return batch, metrics


def replayed(batch: Any) -> set[str]:
    """Returns the uids of copies."""
    pairs = zip(batch.keys, batch.tags, strict=True)
    return {key.split("_")[0] for key, tag in pairs if tag.get("uses", 1) > 1}


def train(gated: Any, play: Play, groups: dict[str, list[float]], *, step: int = 1) -> tuple[Any, dict[str, float]]:
    """Trains a step on these groups."""
    for uid, rewards in groups.items():
        put(play.queue, uid, [1.0, 0.0], step=step, rewards=rewards)
    return sample(gated, play, step, len(groups))


@pytest.mark.parametrize("mode", MODES)
def test_a_dropped_group_is_replaced_by_one_that_was_trained_on(queue: Queue, play: Play, mode: str) -> None:
    gated = buffer(play, mode)
    first, metrics = train(gated, play, {"old": [1, 0]})
    assert metrics[REPLAY + "stored_groups"] == 1 and metrics[REPLAY + "used_groups"] == 0
    put(queue, "good", [1, 0], step=3)
    put(queue, "dead", [0, 0], step=3)
    second, metrics = sample(gated, play, 3, 2)
    (copy,) = replayed(second)
    assert play.handed_out == 0 and "_" not in copy and copy != "old"
    assert {key.split("_")[0] for key in second.keys} == {"good", copy}
    for old_key, old_tag in zip(first.keys, first.tags, strict=True):
        key = old_key.replace("old", copy)
        row, old_row = second.rows[key], first.rows[old_key]
        assert row["uid"] == copy and set(row) == set(old_row)
        for name in ("rollout_log_probs", "prompts", "rm_scores"):
            assert torch.equal(row[name], old_row[name]), name
        assert row["extra_fields"] == old_row["extra_fields"]
        assert second.tags[second.keys.index(key)] == {**old_tag, "uses": 2, PLAYED_UID: "old"}
    assert metrics[REPLAY + "used_groups"] == 1 and metrics[REPLAY + "uses"] == 2
    assert metrics[REPLAY + "lag/mean"] == metrics["training/gate/lag/max"] == 2
    assert metrics["training/gate/lag/mean"] == 1
    # What the gates say of the policy of today does not count it, and it is in the memory once.
    assert metrics["training/gate/judged_groups"] == 2 and metrics[REPLAY + "stored_groups"] == 2
    assert queue.uids() == set()


@pytest.mark.parametrize("mode", MODES)
def test_no_more_than_a_share_of_a_batch_is_replayed(queue: Queue, play: Play, mode: str) -> None:
    gated = buffer(play, mode, share=0.5)
    train(gated, play, {f"old{i}": [1, 0] for i in range(6)})
    for i in range(5):
        put(queue, f"dead{i}", [0, 0], step=2)
    batch, metrics = sample(gated, play, 2, 5)
    # The sync trainer plays some more than it needs, and takes what is new first.
    assert len(replayed(batch)) == metrics[REPLAY + "used_groups"] == max(0, 5 - play.handed_out) <= 2
    assert len({key.split("_")[0] for key in batch.keys}) == 5
    put(queue, "dead", [0, 0], step=3)
    for i in range(3):
        put(queue, f"good{i}", [1, 0], step=3)
    batch, _ = sample(gated, play, 3, 4)
    assert len(replayed(batch)) == 1


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_replayed_where_nothing_is_dropped(queue: Queue, play: Play, mode: str) -> None:
    gated = buffer(play, mode)
    train(gated, play, {"a": [1, 0], "b": [1, 0]})
    _, metrics = train(gated, play, {"c": [1, 0], "d": [1, 0]}, step=2)
    assert metrics[REPLAY + "used_groups"] == 0 == play.handed_out


def test_nothing_is_replayed_while_what_was_handed_out_may_do(queue: Queue, play: Play) -> None:
    gated = buffer(play)
    put(queue, "dead", [0, 0])  # of a step before
    train(gated, play, {"a": [1, 0], "b": [1, 0]})
    play.pending = ["slow0", "slow1"]
    for uid in play.pending:
        queue.put_prompt(uid, "running", step=2)
    gated._replay.put_back = None  # whoever calls it fails
    batch, _ = sample(gated, play, 2, 2)
    assert not replayed(batch)


def test_what_is_in_the_queue_still_counts_for_the_share(queue: Queue, play: Play) -> None:
    gated = buffer(play, "colocate_async", share=0.5)
    train(gated, play, {f"old{i}": [1, 0] for i in range(4)})
    for i in range(2):
        put(queue, f"dead{i}", [0, 0], step=2)
        put(queue, f"good{i}", [1, 0], step=2)
    sample(gated, play, 2, 2)  # replays one group, which is not needed yet
    assert len(gated._replay.in_queue) == 1
    put(queue, "dead", [0, 0], step=3)
    put(queue, "good", [1, 0], step=3)
    batch, _ = sample(gated, play, 3, 2)
    assert len(replayed(batch)) == 1 and not gated._replay.in_queue


@pytest.mark.parametrize("mode", MODES)
def test_every_use_is_counted_and_what_was_only_drawn_is_not(queue: Queue, play: Play, mode: str) -> None:
    gated = buffer(play, mode, share=0.9, priority_share=0.0, capacity=2)
    train(gated, play, {"a": [1, 0], "b": [1, 0], "c": [1, 0]})  # a has to leave for c
    uses = []
    for step in (2, 3, 4):
        for uid in ("x", "y"):
            put(queue, f"{uid}{step}", [1, 1], step=step)
        put(queue, f"z{step}", [1, 0], step=step)
        gated._replay._memory.add = lambda *args, **kwargs: None  # the memory stays as it is
        batch, _ = sample(gated, play, step, 3)
        uses.append(sorted(tag["uses"] for tag in batch.tags if "uses" in tag))
    assert uses == [[2] * 4, [3] * 4, [4] * 4]
    put(queue, "x5", [1, 1], step=5)
    for uid in ("y5", "z5"):
        put(queue, uid, [1, 0], step=5)
    batch, _ = sample(gated, play, 5, 3)
    assert sorted(tag["uses"] for tag in batch.tags if "uses" in tag) == [5, 5]
    assert sorted(group.uses for group in gated._replay._memory._groups.values()) == [4, 5]


def test_a_group_is_in_a_batch_once(queue: Queue, play: Play) -> None:
    gated = buffer(play, "colocate_async", share=0.9)
    train(gated, play, {"old": [1, 0]})
    for i in range(3):
        put(queue, f"dead{i}", [0, 0], step=2)
    batch, metrics = sample(gated, play, 2, 3)
    assert len(replayed(batch)) == 1 == metrics[REPLAY + "used_groups"]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_too_old_is_not_replayed(queue: Queue, play: Play, mode: str) -> None:
    for options in ({"max_lag": 1}, {"gates": ["zero_variance", {"name": "off_policy", "max_lag": 1}]}):
        gated = buffer(play, mode, **options)
        train(gated, play, {"old": [1, 0]})
        put(queue, "dead", [0, 0], step=3)
        put(queue, "good", [1, 0], step=3)
        batch, metrics = sample(gated, play, 3, 2)
        assert not replayed(batch) and metrics[REPLAY + "used_groups"] == 0 and play.handed_out


def test_draws_by_weight_go_by_the_mean_reward(queue: Queue, play: Play) -> None:
    gated = buffer(play, "colocate_async", priority_share=1.0, capacity=3)
    train(gated, play, {"bad": [-2, 0], "none": [0, 0], "rich": [0.9, 0.1]})
    put(queue, "dead", [0, 0], step=2)
    put(queue, "good", [1, 0], step=2)
    batch, _ = sample(gated, play, 2, 2)
    (copy,) = replayed(batch)
    assert [float(batch.rows[f"{copy}_{i}_0"]["rm_scores"].sum()) for i in (0, 1)] == pytest.approx([0.9, 0.1])


def test_draws_by_value_go_by_what_is_left_to_gain_times_the_spread(queue: Queue, play: Play) -> None:
    gated = buffer(play, "colocate_async", weight="value", capacity=8)
    passes = {f"p{number}": [1.0] * number + [0.0] * (5 - number) for number in range(6)}
    for uid, rewards in passes.items():
        put(queue, uid, [1.0, 0.0, 0.0, 0.0, 0.0], rewards=rewards)
    sample(gated, play, 1, 6)
    weights = [group.weight for group in gated._replay._memory._groups.values()]
    assert weights == pytest.approx([0.0, 0.32, 0.293939, 0.195959, 0.08, 0.0], abs=1e-6)
    doubled = buffer(play, "colocate_async", weight="value", max_reward=2)
    train(doubled, play, {"high": [2, 1]})
    assert doubled._replay._memory.get("high").weight == pytest.approx(0.25)


def test_groups_that_are_certain_or_strange_are_not_kept(queue: Queue, play: Play) -> None:
    gated = buffer(play, "colocate_async", certainty_bounds=[0.5, 0.95])
    # 1 / perplexity is the geometric mean of the probabilities of what the policy, and not a script, sampled.
    probs = {"far": 0.4, "low": 0.499, "fine": 0.7, "high": 0.949, "done": 0.99}
    for uid, prob in probs.items():
        put(queue, uid, [1.0, 0.0])
        for session in (0, 1):
            log_probs = torch.full((4,), -9.0 if session else math.log(prob))
            log_probs[1] = -50.0  # an observation
            row = queue.rows[f"{uid}_{session}_0"]
            row["rollout_log_probs"], row["response_mask"] = log_probs, torch.tensor([1, 0, 1, 1])
            if session:
                row["extra_fields"]["reward_extra_info"]["external"] = 1.0
    sample(gated, play, 1, len(probs))
    assert gated._replay._memory.keys == ("fine", "high")


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_draws_what_the_other_would_have_drawn(
    queue: Queue, play: Play, mode: str, tmp_path: Path
) -> None:
    gated = buffer(play, mode, max_lag=None)
    train(gated, play, {f"g{number}": [number / 4, 0] for number in range(4)})
    put(queue, "dead", [0, 0], step=2)
    put(queue, "good", [1, 0], step=2)
    batch, _ = sample(gated, play, 2, 2)
    assert len(replayed(batch)) == 1
    gated.save(tmp_path / "global_step_2")
    resumed = buffer(play, mode, max_lag=None)
    resumed.load(tmp_path / "global_step_2")
    memory, other = gated._replay._memory, resumed._replay._memory
    assert other.keys == memory.keys == ("g0", "g1", "g2", "g3", "good")
    uses = [[one.get(key).uses for key in one.keys] for one in (memory, other)]
    assert uses[0] == uses[1] and sorted(uses[0]) == [1, 1, 1, 1, 2], "what was trained on again stays counted"
    for _ in range(3):
        draws = [[(group.key, group.uses) for group in one.draw(2, version=3)] for one in (memory, other)]
        assert draws[0] == draws[1]
    put(queue, "dead", [0, 0], step=3)
    put(queue, "new", [1, 0], step=3)
    batch, metrics = sample(resumed, play, 3, 2)
    (copy,) = replayed(batch)
    assert float(batch.rows[f"{copy}_0_0"]["rm_scores"].sum()) in (0, 0.25, 0.5, 0.75, 1.0) and play.handed_out == 0
    assert metrics[REPLAY + "lag/mean"] in (1, 2)


@pytest.mark.parametrize(("mode", "uses"), [("sync", 1), ("colocate_async", 2)])
def test_a_copy_that_waited_in_the_queue_is_used_if_the_queue_is_back(
    queue: Queue, play: Play, mode: str, uses: int, tmp_path: Path
) -> None:
    gated = buffer(play, mode)
    train(gated, play, {"old": [1, 0]})
    group = gated._replay.draw(step=2, batch_size=2)
    uid = gated._replay.put_back(group, step=2, partition_id="train")
    gated.save(tmp_path)
    resumed = buffer(play, mode)
    resumed.load(tmp_path)
    assert resumed._replay._memory.get("old").uses == uses
    assert set(resumed._replay.in_queue) == ({uid} if uses == 2 else set())


def test_a_copy_whose_original_has_left_the_memory_is_not_fresh(queue: Queue, play: Play, tmp_path: Path) -> None:
    gated = buffer(play, "colocate_async", max_lag=None)
    train(gated, play, {"old": [1, 0]})
    gated._replay.put_back(gated._replay.draw(step=2, batch_size=2), step=2, partition_id="train")
    gated._replay._memory._groups.clear()
    gated.save(tmp_path)
    resumed = buffer(play, "colocate_async", max_lag=None)
    resumed.load(tmp_path)
    play.step = 2
    batch, _ = resumed.sample(3, "train", 1)
    assert replayed(batch) and len(resumed._replay) == 0


def test_only_the_memories_of_the_checkpoints_that_are_kept_stay(play: Play, tmp_path: Path) -> None:
    for step in (2, 10, 9):
        buffer(play).save(tmp_path / f"global_step_{step}")
    buffer(play).save(tmp_path / "global_step_2_mine")
    forget_memories(tmp_path, max_kept=2)
    left = {path.parent.name for path in tmp_path.rglob("replay.pt")}
    assert left == {"global_step_9", "global_step_10", "global_step_2_mine"}


def test_void_sessions_and_greedy_baselines_have_no_weight(queue: Queue, play: Play) -> None:
    gated = buffer(play, "colocate_async", weight="value")
    put(queue, "g", [1, 1, 0, None, 0])
    for session in range(5):
        queue.rows[f"g_{session}_0"][GREEDY_SESSION] = 4
    sample(gated, play, 1, 1)
    assert gated._replay._memory.get("g").weight == pytest.approx((1 - 2 / 3) * (2 / 9) ** 0.5)


def test_a_checkpoint_without_a_memory_is_told(play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gated = buffer(play)
    gated.load(tmp_path)
    assert len(gated._replay) == 0 and "has no replayed groups" in caplog.text


def test_what_was_put_back_and_not_needed_is_no_surplus_to_keep(queue: Queue, play: Play) -> None:
    gated = buffer(play, keep_surplus=4)
    train(gated, play, {"old": [1, 0]})
    put(queue, "dead", [0, 0], step=2)
    play.pending = ["slow0", "slow1", "slow2"]
    for uid in play.pending:
        queue.put_prompt(uid, "running", step=2)
    batch, metrics = sample(gated, play, 2, 2)
    # What is new goes first.
    assert not replayed(batch) and metrics["training/gate/surplus/kept_groups"] == len(queue.uids()) > 0
    assert not any(tag.get("uses", 1) > 1 for tag in queue.tags["train"].values())
    assert [group.uses for group in gated._replay._memory._groups.values()] == [1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_a_memory_does_not_hide_that_nothing_is_learned_any_more(queue: Queue, play: Play, mode: str) -> None:
    gated = buffer(play, mode, window=8)
    train(gated, play, {f"old{i}": [1, 0] for i in range(4)})
    play.accs = [0.0, 0.0]
    play.step = 2
    play.refill(4)
    with pytest.raises(StarvationError, match="2 of 4"):
        gated.sample(2, "train", 4)


def test_rows_that_no_loss_could_weigh_are_refused(queue: Queue, play: Play) -> None:
    queue.put_group("bare", [1, 0])
    with pytest.raises(DataError, match="replayed"):
        buffer(play).sample(1, "train", 1)
    put(queue, "late", [1, 0])
    for row in queue.rows.values():
        row["old_log_probs"] = torch.zeros(4)
    with pytest.raises(DataError, match="old_log_probs"):
        buffer(play).sample(1, "train", 1)


@pytest.mark.parametrize(
    ("replay", "said"),
    [
        ({"capacity": 0}, "replay.capacity"),
        ({"size": 3}, "'size'"),
        ({"max_reward": 2}, "replay.max_reward"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(play: Play, replay: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        buffer(play, **replay)


def config(*, calculate_log_probs: bool = True, **correction: Any) -> Any:
    return OmegaConf.create(
        {
            "algorithm": {"rollout_correction": correction},
            "reward": {"reward_manager": {"name": "naive"}},
            "actor_rollout_ref": {"rollout": {"calculate_log_probs": calculate_log_probs}},
            "data": {"train_batch_size": 8},
            "trainer": {"v1": {"sampler": {}}},
        }
    )


def test_trainers_that_would_take_them_for_fresh_are_refused_or_warned(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="bypass_mode"):
        buffer(play).attach(config(bypass_mode=True))
    with pytest.raises(ConfigError, match="calculate_log_probs"):
        buffer(play).attach(config(calculate_log_probs=False))
    with caplog.at_level(logging.WARNING):
        buffer(play).attach(config(rollout_is="token"))
        assert not caplog.records
        buffer(play).attach(config())
    assert "rollout_is=token" in caplog.text
