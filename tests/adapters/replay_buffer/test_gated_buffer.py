"""verl's replay buffers with gates: what is dropped, replaced, kept for later, and that nothing of verl's is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from queues import Queue, install
from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY, ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.import_utils import load_extern_object
from verl_versions import AFTER_MAIN, needs_verl

from verl_agentic.base.errors import ConfigError, InfrastructureError, StarvationError
from verl_agentic.episode.circuit_breaker import CircuitBreaker
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.replay_buffer import episode_buffer as replay_buffer
from verl_agentic.verl.replay_buffer import gated_buffer
from verl_agentic.verl.replay_buffer.buffer_features import check_filters
from verl_agentic.verl.replay_buffer.finished_groups import read_groups
from verl_agentic.verl.replay_buffer.gated_buffer import GatedReplayBuffer

GATE = "training/gate/"
counts_ready_groups = needs_verl(">=0.9.1", "ReplayBufferAsync.get_sampleable_count")
# V-DYNSAMP: g5 is a group of right answers whose reward is shaped by length.
DYNSAMP: dict[str, list[float]] = {
    "g1": [1, 1, 1, 1],
    "g2": [1, 0, 1, 0],
    "g3": [0, 0, 0, 0],
    "g4": [1, 1, 1, 0],
    "g5": [1, 1, 1, 1],
}
SHAPED = {"g5": [0.9, 1.0, 1.0, 0.8]}


class Play:
    """The trainer and its rollout: prompts that are handed out are played at the next poll."""

    def __init__(self, queue: Queue, outcomes: Callable[[int], list[float | None]]) -> None:
        self.queue = queue
        self.outcomes = outcomes
        self.step = 1
        self.handed_out: list[int] = []
        self.pending: list[str] = []
        self.polls: list[float] = []

    def refill(self, count: int) -> int:
        self.handed_out.append(count)
        for _ in range(count):
            uid = f"new{sum(self.handed_out) - count + len(self.pending)}s{self.step}n{len(self.polls)}"
            while uid in self.pending:
                uid += "x"
            self.pending.append(uid)
            self.queue.put_prompt(uid, "pending", step=self.step)
        return count

    def sleep(self, seconds: float) -> None:
        assert len(self.polls) < 500, "it never ends"
        self.polls.append(seconds)
        for uid in self.pending:
            self.queue.put_group(uid, self.outcomes(len(self.polls)), step=self.step)
        self.pending = []

    @staticmethod
    def time() -> float:
        return 0.0


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    install(queue, monkeypatch)
    return queue


@pytest.fixture
def play(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Play:
    play = Play(queue, lambda poll: [1.0, 0.0])
    monkeypatch.setattr("verl.trainer.ppo.v1.replay_buffer.time", play)
    return play


def buffer(play: Play, mode: str = "sync", **options: Any) -> Any:
    return GatedReplayBuffer(
        trainer_mode=mode,
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create(options),
        refill_fn=play.refill,
    )


def uids(batch: Any) -> set[str]:
    return {key.split("_")[0] for key in batch.keys}


def put_dynsamp(queue: Queue) -> None:
    for uid, accs in DYNSAMP.items():
        queue.put_group(uid, accs, rewards=SHAPED.get(uid, accs))


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_groups_are_filtered_by_the_raw_outcome_not_by_the_shaped_reward(queue: Queue, play: Play, mode: str) -> None:
    put_dynsamp(queue)
    batch, metrics = buffer(play, mode).sample(1, "train", 2)
    assert uids(batch) == {"g2", "g4"} and len(batch.keys) == 8
    assert metrics["training/filter_groups/evicted_samples"] == 3
    assert metrics[GATE + "zero_variance/dropped_groups"] == 3 and metrics[GATE + "drop_rate"] == 3 / 5
    assert metrics[GATE + "zero_variance_rate"] == 3 / 5
    assert (metrics[GATE + "all_0_rate"], metrics[GATE + "all_1_rate"]) == (1 / 5, 2 / 5)
    # 5 groups of 4 responses of 4 tokens for 2 useful groups.
    assert metrics[GATE + "tokens_per_useful_group"] == 40
    assert metrics[DAPO_FILTERED_REWARD_COUNTS_KEY] == {0.0: 1, 1.0: 2}


@needs_verl(AFTER_MAIN, "a filter of groups by their whole reward")
def test_verls_own_filter_on_the_reward_would_keep_the_shaped_group(queue: Queue, play: Play) -> None:
    put_dynsamp(queue)
    theirs = ReplayBuffer(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({}),
        refill_fn=play.refill,
        filter_groups_metric="reward",
        train_batch_size=3,
        gen_batch_size=1,
    )
    batch, _ = theirs.sample(1, "train", 3)
    assert uids(batch) == {"g2", "g4", "g5"}


def test_the_buffer_is_verls_own_kind_for_every_mode(play: Play) -> None:
    assert isinstance(buffer(play), ReplayBuffer) and not isinstance(buffer(play), ReplayBufferAsync)
    for mode in ("colocate_async", "separate_async"):
        assert isinstance(buffer(play, mode), ReplayBufferAsync)


@counts_ready_groups
def test_verl_may_lend_the_machines_of_the_buffer(play: Play) -> None:
    for mode in ("colocate_async", "separate_async"):
        assert buffer(play, mode).get_sampleable_count(1, "train") == 0


def test_verl_finds_it_by_the_path_of_the_documentation() -> None:
    assert (
        load_extern_object("pkg://verl_agentic.verl.replay_buffer.gated_buffer", "GatedReplayBuffer")
        is GatedReplayBuffer
    )


def test_sync_replaces_what_it_drops_until_the_batch_is_full(queue: Queue, play: Play) -> None:
    for i in range(4):
        queue.put_group(f"dead{i}", [1, 1])
    play.outcomes = lambda poll: [1.0, 0.0] if poll > 1 else [0.0, 0.0]
    batch, metrics = buffer(play).sample(1, "train", 4)
    assert len(uids(batch)) == 4 and not uids(batch) & {"dead0", "dead1", "dead2", "dead3"}
    assert metrics[GATE + "judged_groups"] == 4 + sum(play.handed_out)
    assert max(play.handed_out) <= 4, "no more than a batch is played at a time"


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_the_others_replace_one_by_one(queue: Queue, play: Play, mode: str) -> None:
    put_dynsamp(queue)
    batch, metrics = buffer(play, mode).sample(1, "train", 5)
    assert play.handed_out == [3] and len(uids(batch)) == 5 and uids(batch) > {"g2", "g4"}
    assert metrics[GATE + "judged_groups"] == 8


def test_sync_hands_out_no_more_than_it_needs_where_verl_hands_out_two_for_one(queue: Queue, play: Play) -> None:
    for i in range(18):
        queue.put_group(f"good{i}", [1, 0])
    for i in range(2):
        queue.put_group(f"bad{i}", [0, 0])
    buffer(play).sample(1, "train", 20)
    # 2 are missing where (1 + 18) / (2 + 20) are kept: 2.3 prompts; verl would have played 4.
    assert play.handed_out == [3]


def test_failed_groups_are_handled_as_in_verl(queue: Queue, play: Play) -> None:
    queue.put_group("half", [1, 0, 1], status="failure")
    queue.put_prompt("gone", "failure")
    batch, _ = buffer(play, gates=["zero_variance"]).sample(1, "train", 2)
    assert uids(batch) == {"half"} and not play.handed_out, "verl trains on what is left of a failed group"
    queue.put_prompt("gone", "failure")
    queue.put_group("good", [1, 0])
    batch, metrics = buffer(play).sample(1, "train", 2)
    assert "gone" not in uids(batch) and metrics[GATE + "void_groups/dropped_groups"] == 1
    queue.put_prompt("gone", "failure")
    queue.put_group("half", [1, 0], status="failure")
    _, metrics = buffer(play, "colocate_async").sample(1, "train", 1)
    assert metrics["training/rollout_failure/evicted_samples"] == 2


def test_failed_groups_are_replaced_when_verl_is_told_to(queue: Queue, play: Play) -> None:
    queue.put_prompt("gone", "failure")
    gated = buffer(play)
    gated.sync_refill_failed_groups = True
    _, metrics = gated.sample(1, "train", 1)
    assert metrics["training/rollout_failure/evicted_samples"] == 1 and play.handed_out == [1]
    assert metrics[GATE + "void_groups/dropped_groups"] == 0, "it is verl's, and replaced once"


def test_validation_is_not_filtered(queue: Queue, play: Play) -> None:
    for partition in ("val", "train"):
        queue.put_group(f"g-{partition}", [1, 1], partition=partition)
    batch, metrics = buffer(play).sample(1, "val", 1)
    assert uids(batch) == {"g-val"} and metrics == {} and queue.uids() == {"g-train"}


def test_void_sessions_do_not_count_and_lone_survivors_go(queue: Queue, play: Play) -> None:
    queue.put_group("lone", [1, None, None])
    queue.put_group("same", [1, None, 1])
    queue.put_group("good", [1, None, 0])
    batch, metrics = buffer(play).sample(1, "train", 1)
    assert uids(batch) == {"good"} and len(batch.keys) == 3
    assert metrics[GATE + "void_groups/dropped_groups"] == metrics[GATE + "zero_variance/dropped_groups"] == 1
    assert metrics[GATE + "void_rate"] == 4 / 9


# What other adapters have wrapped.


class Ranked:
    """Stands in for group rewards."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    def score(self, keys: list[str], partition_id: str) -> None:
        self.seen.append(tuple(sorted(keys)))


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_metrics_of_episodes_group_rewards_and_the_breaker_still_work_and_once(
    queue: Queue, play: Play, mode: str
) -> None:
    import verl_agentic.verl.reward.group_rewards

    assert verl_agentic.verl.reward.group_rewards and replay_buffer
    put_dynsamp(queue)
    gated = buffer(play, mode)
    state = state_of(gated)
    state.group_rewards, state.breaker = Ranked(), CircuitBreaker()
    batch, metrics = gated.sample(1, "train", 2)
    assert state.group_rewards.seen == [tuple(sorted(batch.keys))]
    assert metrics["episode/acc"] == 5 / 8 and metrics[GATE + "acc"] == 13 / 20
    assert state.breaker.void_share == 0


def test_the_breaker_sees_the_void_episodes_that_a_gate_has_dropped(queue: Queue, play: Play) -> None:
    for i in range(16):
        queue.put_group(f"void{i}", [None, None])
    play.outcomes = lambda poll: [None, None]
    gated = buffer(play)
    state_of(gated).breaker = CircuitBreaker()
    with pytest.raises(InfrastructureError, match="32x SandboxError"):
        gated.sample(1, "train", 16)


def test_polls_are_short_and_the_wrapped_option_is_read(queue: Queue, play: Play) -> None:
    assert buffer(play).poll_interval == 0.05
    gated = buffer(play, poll_interval_s=0.2)
    queue.put_group("dead", [1, 1])
    gated.sample(1, "train", 1)
    assert play.polls == [pytest.approx(0.2)]


def test_looking_for_news_takes_a_tenth_of_the_time_at_most(
    queue: Queue, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put_group("dead", [1, 1])
    ticks = iter(range(100))
    monkeypatch.setattr("verl_agentic.verl.replay_buffer.gated_buffer.time.perf_counter", lambda: float(next(ticks)))
    buffer(play).sample(1, "train", 1)
    assert play.polls == [9.0]


# Surplus.


def test_surplus_is_discarded_as_in_verl_or_kept_while_its_weights_are_fresh_enough(queue: Queue, play: Play) -> None:
    key = "training/filter_groups/discarded_surplus_samples"
    for keep, kept, discarded in ((0, 0, 3), (1, 3, 0)):
        for i in range(5):
            queue.put_group(f"good{i}", [1, 0])
        gated = buffer(play, keep_surplus=keep)
        batch, metrics = gated.sample(1, "train", 2)
        assert metrics[key] == discarded and len(queue.uids()) == kept
        assert metrics.get(GATE + "surplus/kept_groups", 0) == kept
        for uid in queue.uids() | uids(batch):
            queue.kv_clear(keys=[uid], partition_id="train")


def test_kept_groups_are_used_first_with_their_lag_in_the_metrics_and_then_go(queue: Queue, play: Play) -> None:
    for i in range(6):
        queue.put_group(f"old{i}", [1, 0], columns=[{"rollout_log_probs": torch.tensor([-0.5])}] * 2)
    gated = buffer(play, keep_surplus=1)
    first, metrics = gated.sample(1, "train", 2)
    assert metrics[GATE + "surplus/kept_groups"] == 4 and metrics[GATE + "lag/max"] == 0
    for i in range(2):
        queue.put_group(f"new{i}", [1, 0], step=2)
    second, metrics = gated.sample(2, "train", 3)
    assert {uid[:3] for uid in uids(second)} == {"old"} and not uids(first) & uids(second)
    assert metrics[GATE + "lag/max"] == 1 and metrics[GATE + "surplus/used_groups"] == 3
    assert all("rollout_log_probs" in queue.rows[key] for key in second.keys), "they carry behaviour log-probs"
    # The last old group would be two versions old: it goes; the new ones stay.
    assert queue.uids() == {"new0", "new1"} and metrics["training/filter_groups/discarded_surplus_samples"] == 1
    # What is judged is counted once, though kept groups are there in two steps.
    assert metrics[GATE + "judged_groups"] == 2


def test_the_asynchronous_buffers_keep_their_surplus_anyway(queue: Queue, play: Play) -> None:
    with pytest.raises(ConfigError, match="keep_surplus"):
        buffer(play, "separate_async", keep_surplus=1)
    for i in range(3):
        queue.put_group(f"good{i}", [1, 0])
    gated = buffer(play, "separate_async")
    gated.sample(1, "train", 2)
    _, metrics = gated.sample(2, "train", 1)
    assert metrics[GATE + "lag/mean"] == 1


# Gates that need more.


def logged(rollout: list[float], old: list[float] | None = None) -> dict[str, Any]:
    """Log-probs of four tokens, the third of which the policy did not sample."""
    columns = {"rollout_log_probs": torch.tensor(rollout), "response_mask": torch.tensor([1, 1, 0, 1])}
    return columns if old is None else {**columns, "old_log_probs": torch.tensor(old)}


def test_sessions_of_low_entropy_leave_the_batch_and_the_queue(queue: Queue, play: Play) -> None:
    low, high = logged([-0.02, -0.02, -1e30, -0.02]), logged([-0.8, -0.8, float("nan"), -0.8])
    queue.put_group("g", [1, 0, 1], columns=[low, high, high])
    gates = [{"name": "low_entropy", "floor": 0.05}, "void_groups", "zero_variance"]
    batch, metrics = buffer(play, gates=gates).sample(1, "train", 1)
    assert sorted(batch.keys) == ["g_1_0", "g_2_0"] == sorted(queue.rows)
    assert metrics[GATE + "low_entropy/dropped_sessions"] == 1


def test_what_a_script_played_stays_and_says_nothing_of_the_policy(queue: Queue, play: Play) -> None:
    shown, high = logged([0.0] * 4), logged([-0.8] * 4)  # a script writes with certainty
    queue.put_group("g", [1, 0, 0], columns=[shown, high, high])
    queue.rows["g_0_0"]["extra_fields"]["reward_extra_info"]["external"] = 1.0
    batch, metrics = buffer(play, gates=["low_entropy", "zero_variance"]).sample(1, "train", 1)
    assert sorted(batch.keys) == ["g_0_0", "g_1_0", "g_2_0"]
    assert metrics[GATE + "acc"] == 0 and metrics[GATE + "all_0_rate"] == 1


def test_gates_see_what_earlier_ones_have_left(queue: Queue, play: Play) -> None:
    low, high = logged([-0.02] * 4), logged([-0.8] * 4)
    queue.put_group("g", [0, 1, 1], columns=[low, high, high])  # without the first, they are all the same
    play.outcomes = lambda poll: [1.0, 0.0]
    queue.put_group("h", [0, 1, 1], columns=[high, high, high])
    batch, metrics = buffer(play, gates=["low_entropy", "zero_variance"]).sample(1, "train", 1)
    assert uids(batch) == {"h"} and metrics[GATE + "zero_variance/dropped_groups"] == 1


def test_sessions_far_from_the_trained_policy_leave_where_its_log_probs_are_known(queue: Queue, play: Play) -> None:
    # V-IS: ratios .3, 1, 2.5 and 8 with IcePop's bounds [.5, 5].
    columns = [
        logged([-9.0, -9.0, float("nan"), -9.0], (torch.tensor([ratio] * 4).log() - 9).tolist())
        for ratio in (0.3, 1.0, 2.5, 8.0)
    ]
    queue.put_group("g", [1, 0, 1, 0], columns=columns)
    batch, _ = buffer(play, gates=[{"name": "off_policy_ratio", "low": 0.5, "high": 5.0}]).sample(1, "train", 1)
    assert sorted(batch.keys) == ["g_1_0", "g_2_0"]
    queue.put_group("fresh", [1, 0], columns=[logged([-1.0] * 4)] * 2)
    with pytest.raises(ConfigError, match="old_log_probs"):
        buffer(play, gates=["off_policy_ratio"]).sample(1, "train", 1)


def test_a_session_is_as_old_as_the_oldest_weights_of_its_rows(queue: Queue) -> None:
    queue.put_group("a", [1, 0], step=3)
    tags = {key: tag for key, tag in queue.tags["train"].items() if not tag.get("is_prompt")}
    queue.rows["a_0_1"] = queue.rows["a_0_0"]
    tags["a_0_1"] = {**tags["a_0_0"], "min_global_steps": 0}
    (played,) = read_groups({"a"}, partition_id="train", tags=tags, needs=set(), step=3)
    assert [session.lag for session in played.group.sessions] == [2, 0]


def test_a_group_grows_too_old_while_it_waits(queue: Queue, play: Play) -> None:
    gated = buffer(play, "separate_async", gates=[{"name": "off_policy", "max_lag": 1}])
    queue.put_group("a", [1, 0], step=1)
    queue.put_group("b", [1, 0], step=1)
    gated.sample(2, "train", 1)
    play.step = 3
    batch, metrics = gated.sample(3, "train", 1)
    assert uids(batch).isdisjoint({"a", "b"}) and metrics[GATE + "off_policy/dropped_groups"] == 1


@pytest.mark.parametrize("cohort", [5, 10])
def test_the_strongest_signals_are_chosen_from_a_cohort_or_from_all_there_is(
    queue: Queue, play: Play, cohort: int
) -> None:
    # V-STARPOS: standard deviations .5 .4 .1 0 .3; p = .75 keeps the groups 0, 1 and 4.
    for i, std in enumerate([0.5, 0.4, 0.1, 0.0, 0.3]):
        queue.put_group(f"g{i}", [1, 0], rewards=[0.5 + std, 0.5 - std])
    gates = [{"name": "top_p_signal", "p": 0.75}]
    batch, metrics = buffer(play, gates=gates, cohort=cohort).sample(1, "train", 3)
    assert uids(batch) == {"g0", "g1", "g4"} and metrics[GATE + "top_p_signal/dropped_groups"] == 2


@counts_ready_groups
def test_a_cohort_is_waited_for_while_groups_are_played(queue: Queue, play: Play) -> None:
    queue.put_group("a", [1, 0])
    queue.put_group("b", [0.6, 0.5])
    play.refill(1)
    gated = buffer(play, "separate_async", gates=[{"name": "top_p_signal", "fraction": 0.67}])
    gated._begin_batch(3)
    assert gated.get_sampleable_count(1, "train") == 0
    play.sleep(1)
    assert gated.get_sampleable_count(1, "train") == 2


def test_groups_that_all_have_the_same_signal_do_not_starve(queue: Queue, play: Play) -> None:
    for i in range(4):
        queue.put_group(f"g{i}", [1, 0])
    batch, _ = buffer(play, gates=[{"name": "top_p_signal", "p": 0.5}]).sample(1, "train", 4)
    assert len(uids(batch)) == 4


def test_sessions_of_several_rows_count_once_and_greedy_ones_not_at_all(queue: Queue, play: Play) -> None:
    # The last row tells the outcome; the greedy session is a baseline of the others.
    queue.put_group("g", [1, 1, 0])
    queue.tags["train"]["g_1_1"] = dict(queue.tags["train"]["g_1_0"])
    queue.rows["g_1_1"] = {**queue.rows["g_1_0"], "extra_fields": {"reward_extra_info": {"acc": 1.0}}}
    queue.rows["g_1_0"]["extra_fields"] = {"reward_extra_info": {"acc": 0.5}}
    queue.put_group("h", [1, 0])
    for key, row in queue.rows.items():
        row[GREEDY_SESSION] = torch.tensor(2 if key[0] == "g" else 5)
    batch, metrics = buffer(play).sample(1, "train", 1)
    assert uids(batch) == {"h"} and metrics[GATE + "all_1_rate"] == 0.5


def test_rows_are_read_once_each(queue: Queue, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_buffer, "_fetch_episodes", lambda keys, partition_id: {})
    for i in range(3):
        queue.put_group(f"dead{i}", [1, 1])
        queue.put_group(f"good{i}", [1, 0])
    buffer(play).sample(1, "train", 5)
    assert len(queue.read) == len(set(queue.read))


# Ends.


@pytest.mark.parametrize("mode", ["sync", "separate_async"])
def test_tasks_that_nobody_solves_end_with_an_error_that_tells_the_drop_rate(
    queue: Queue, play: Play, mode: str
) -> None:
    play.outcomes = lambda poll: [0.0, 0.0]
    play.refill(8)
    with pytest.raises(StarvationError, match="all_0"):
        buffer(play, mode, window=64).sample(1, "train", 8)


@pytest.mark.parametrize("mode", ["sync", "separate_async"])
def test_the_budget_ends_with_an_error(queue: Queue, play: Play, mode: str) -> None:
    play.outcomes = lambda poll: [1.0, 1.0]
    queue.put_group("good", [1, 0])
    play.refill(3)
    with pytest.raises(StarvationError, match="max_generated_groups"):
        buffer(play, mode, max_generated_groups=16).sample(1, "train", 4)
    if mode == "sync":
        assert 1 + sum(play.handed_out) == 16, "not one prompt more was played"
    with pytest.raises(ConfigError, match="max_generated_groups"):
        buffer(play, mode, max_generated_groups=3).sample(1, "train", 4)


def test_what_is_played_is_paid_for_by_the_budget(queue: Queue, play: Play) -> None:
    for i in range(2):
        queue.put_group(f"dead{i}", [1, 1])
        queue.put_prompt(f"slow{i}", "running")
    gated = buffer(play, max_generated_groups=5)
    gated._begin_batch(4)
    gated._sync_metadata_from_transfer_queue()
    gated._terminal_eviction_reasons(1, "train")
    gated._refill_prompts(4)
    assert play.handed_out == [1], "2 are judged, 2 are played"


def test_every_batch_has_its_own_budget(queue: Queue, play: Play) -> None:
    gated = buffer(play, max_generated_groups=3)
    for step in (1, 2, 3):
        play.step = step
        queue.put_group(f"dead{step}", [1, 1], step=step)
        queue.put_group(f"good{step}", [1, 0], step=step)
        assert len(uids(gated.sample(step, "train", 2)[0])) == 2


# Configuration.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gate": []}, "'gate'"),
        ({"gates": ["zero_varianz"]}, "zero_varianz"),
        ({"gates": "zero_variance"}, "sampler_kwargs.gates"),
        ({"keep_surplus": -1}, "sampler_kwargs.keep_surplus"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(play: Play, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        buffer(play, **options)


def config(**changes: Any) -> Any:
    made = OmegaConf.create(
        {
            "algorithm": {"filter_groups": {"enable": False}},
            "reward": {"reward_manager": {"name": "naive"}, "reward_model": {"enable": False}},
            "actor_rollout_ref": {"rollout": {"calculate_log_probs": False}},
            "data": {"train_batch_size": 8},
            "trainer": {"v1": {"sampler": {"sync_refill_failed_groups": True}}},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value)
    OmegaConf.set_struct(made, True)
    return made


def gated(made: Any, **options: Any) -> Any:
    """Returns a configuration with the buffer that has gates."""
    OmegaConf.set_struct(made, False)
    made.trainer.v1.sampler.custom_sampler = {"path": "pkg://verl_agentic.verl.replay_buffer.gated_buffer"}
    made.trainer.v1.sampler.sampler_kwargs = options
    return made


class Trainer:
    def __init__(self, replay_buffer: Any, config: Any) -> None:
        self.replay_buffer = replay_buffer
        self.config = config
        self.dataloader: int | None = None


def init_dataloader(self: Any) -> None:
    self.dataloader = self.config.data.get("gen_batch_size")


def test_the_trainer_tells_it_what_verl_does_not_before_prompts_are_loaded(play: Play) -> None:
    trainer = Trainer(buffer(play), config())
    gated_buffer._attach_buffer(init_dataloader, trainer)
    assert trainer.dataloader == 1, "refills are counted in prompts"
    assert trainer.replay_buffer.sync_refill_failed_groups
    other = Trainer(object(), config())
    gated_buffer._attach_buffer(init_dataloader, other)
    assert other.dataloader is None
    assert PPOTrainer._init_dataloader.__wrapped__.__module__ == PPOTrainer.__module__


@pytest.mark.parametrize(
    ("changes", "gates", "said"),
    [
        ({"algorithm__filter_groups__enable": True}, ["void_groups"], "algorithm.filter_groups.enable"),
        ({"reward__reward_model": {"enable": True, "enable_resource_pool": False}}, ["void_groups"], "colocated"),
        ({}, ["low_entropy"], "calculate_log_probs"),
    ],
)
def test_trainers_that_do_not_fit_are_refused(changes: Any, gates: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_filters(gated(config(**changes), gates=gates))


def test_outcomes_that_only_the_group_shows_come_too_late() -> None:
    from pathlib import Path

    components = [{"use": f"{Path(__file__).parents[2]}/rewards/scorer_components.py:rank", "kind": "outcome"}]
    late = config()
    OmegaConf.set_struct(late, False)
    late.reward = {"reward_manager": {"name": "rubric"}, "rubric": {"components": components}}
    late.reward.reward_model = {"enable": False}
    with pytest.raises(ConfigError, match="'rank'"):
        check_filters(gated(late))
    late.algorithm.filter_groups.enable = True
    late.trainer.v1.sampler.custom_sampler.path = None
    with pytest.raises(ConfigError, match="'rank'"):
        check_filters(late)  # verl's own filter
    late.algorithm.filter_groups.enable = False
    check_filters(late)
