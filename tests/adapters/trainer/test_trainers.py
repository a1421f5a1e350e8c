"""Data that our trainers pass, store and refuse, on verl's own code above a fake of TransferQueue."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from stage import SAMPLING, Chat, Servers, make_stage, row
from stored_rows import StoredRows, algorithm
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, PPOTrainer

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.trainer_context import current_context
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.verl.extensions.method_features import check_engine
from verl_agentic.verl.rollout import agent_loop
from verl_agentic.verl.trainer.trainer_features import check_loss
from verl_agentic.verl.trainer.trainers import CreditMixin, _store_session_weights


def to_config(name: str = "grpo", *, loss: str = "vanilla", n: int = 2, **section: Any) -> DictConfig:
    actor = {"strategy": "fsdp2", "policy_loss": {"loss_mode": loss}}
    return OmegaConf.create(
        {
            "algorithm": algorithm(adv_estimator=name, **section),
            "actor_rollout_ref": {
                "rollout": {
                    "n": n,
                    "temperature": 1.0,
                    "calculate_log_probs": False,
                    "custom": {"agentic": {"audit": "off"}},  # groups here are not whole
                },
                "actor": actor,
            },
            "trainer": {"v1": {"trainer_mode": "agentic_sync"}, "critic_warmup": 0, "default_local_dir": "out"},
        }
    )


class Verl:
    """verl's trainer as far as a mixin sees it: it writes down what it is called with."""

    global_steps = 1
    total_training_steps = 4

    def __init__(self, config: Any) -> None:
        self.config, self.seen = config, []
        self.seen.append(config.trainer.v1.trainer_mode)

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        batch = TensorDict({"index": torch.arange(num_prompts or 2)}, batch_size=num_prompts or 2)
        sizes = OmegaConf.select(self.config, "sizes")
        if sizes is not None:
            batch["__rollout_n__"] = torch.tensor(list(sizes))
        return batch

    def _balance_batch(self, batch: Any, metrics: Any) -> Any:
        self.seen.append(list(batch.keys))
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: Any) -> Any:
        self.seen.append(dict(batch.extra_info))
        return batch

    _update_actor = _compute_old_log_prob
    _compute_advantage = PPOTrainer._compute_advantage


class Trainer(CreditMixin, Verl):
    mode = "sync"


def played(queue: StoredRows, outcomes: dict[str, float], *, greedy: Sequence[int | None] = (2,), **more: Any) -> None:
    """Puts rows of two tokens in, with the outcome on the last."""
    for number, (key, outcome) in enumerate(outcomes.items()):
        session = greedy[number % len(greedy)]
        column = {} if session is None else {GREEDY_SESSION: torch.tensor(session)}
        queue.put_row(key, [0.0, outcome], old_log_probs=torch.zeros(2), **column, **more)


# Trainers.


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_every_mode_has_a_trainer_that_is_verls_own(mode: str) -> None:
    trainer = TRAINER_REGISTRY[f"agentic_{mode}"]
    assert issubclass(trainer, TRAINER_REGISTRY[mode]) and issubclass(trainer, CreditMixin)
    assert trainer.mode == mode


def test_verl_sees_its_own_name_of_the_mode() -> None:
    assert Trainer(to_config()).seen == ["sync"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm.length_lr": {"reference_tokens": 5}}, "length_lr"),
        ({"algorithm.linear_lr": {"min_ratio": 0.0}}, "linear_lr"),
        ({"actor_rollout_ref.actor.policy_loss.loss_mode": "rover"}, "'megatron'"),
    ],
)
def test_what_needs_fsdp_is_refused_without(change: dict[str, Any], message: str) -> None:
    config = to_config()
    for key, value in change.items():
        OmegaConf.update(config, key, value, force_add=True)
    check_engine(config)
    config.actor_rollout_ref.actor.strategy = "megatron"
    with pytest.raises(ConfigError, match=message):
        check_engine(config)


@pytest.mark.parametrize(("name", "loss"), [("token_baseline", "vanilla"), ("dr_grpo", "rover")])
def test_what_is_computed_with_the_old_log_probs_is_refused_where_those_are_not_computed(name: str, loss: str) -> None:
    for check in (check_loss, check_engine):
        check(to_config(name, loss=loss, rollout_correction={"bypass_mode": False}))
    check = check_engine if loss == "rover" else check_loss
    with pytest.raises(ConfigError, match="bypass_mode"):
        check(to_config(name, loss=loss, rollout_correction={"bypass_mode": True}))


def test_a_loss_that_reads_all_logits_is_refused_with_kernels_of_verl() -> None:
    config = to_config("dr_grpo", loss="rover")
    kernels = {"use_fused_kernels": True, "fused_kernel_options": {"impl_backend": "sampled"}}
    OmegaConf.update(config, "actor_rollout_ref.model", kernels, force_add=True)
    check_engine(config)  # the plugin's own gives way to such a pass
    config.actor_rollout_ref.model.fused_kernel_options.impl_backend = "torch"
    with pytest.raises(ConfigError, match="use_fused_kernels=false"):
        check_engine(config)


def test_verls_filter_of_groups_is_refused_beside_greedy_sessions() -> None:
    check_loss(to_config("grpo", filter_groups={"enable": True}))
    with pytest.raises(ConfigError, match=r"greedy sessions.*GatedReplayBuffer"):
        check_loss(to_config("remax", filter_groups={"enable": True}))


def test_a_plain_trainer_of_verl_s_has_the_metrics_of_credit_and_of_the_batch(queue: StoredRows) -> None:
    for key, acc in {"u_0_0": 1.0, "u_1_0": 0.0, "v_0_0": 1.0, "v_1_0": 1.0}.items():
        queue.put_row(key, [0.0, acc], old_log_probs=torch.zeros(2), info={"acc": acc})
    metrics: dict[str, Any] = {}
    Verl(to_config())._compute_advantage(queue.meta(), metrics)
    assert metrics["credit/all_1_group_frac"] == 0.5 == metrics["batch/all_1_group_frac"]
    assert metrics["batch/wrong_length"] == 2.0, "which takes the outcome, that estimators there do not get"


def test_a_plain_trainer_of_verl_s_tells_how_many_siblings_differ(queue: StoredRows) -> None:
    texts = {"u_0_0": [5, 6, 7], "u_1_0": [5, 9, 7], "u_2_0": [5, 6, 8], "v_0_0": [5, 6, 7], "v_1_0": [5, 6, 7]}
    for place, (key, ids) in enumerate(texts.items()):
        queue.put_row(key, [0.0] * 3, mask=[1, 0, 1], old_log_probs=torch.zeros(3), responses=torch.tensor(ids))
        queue.rows[key]["extra_fields"]["steps"] = [[0, 1, place]]
    metrics: dict[str, Any] = {}
    Verl(to_config())._compute_advantage(queue.meta(), metrics)
    # The second token is an observation: 2 distinct of 3, and 1 of 2.
    assert metrics["batch/distinct_share"] == pytest.approx((1 / 2 + 0) / 2)
    assert metrics["batch/distinct_action_share"] == 1.0


@pytest.mark.parametrize(("loss", "size"), [("pacs", 2), ("vanilla", None)])
def test_a_loss_that_compares_siblings_gets_whole_groups(queue: StoredRows, loss: str, size: int | None) -> None:
    played(queue, {"u_0_0": 1.0, "v_0_0": 1.0, "u_1_0": 0.0, "v_1_0": 0.0}, greedy=(None,))
    config = to_config(loss=loss)
    config.actor_rollout_ref.actor.ppo_mini_batch_size = 2
    trainer = Trainer(config)
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0, 1]})
    batch = trainer._update_actor(trainer._balance_batch(queue.meta(), {}), {})
    first_of_ranks = [batch.keys[0][0], batch.keys[2][0]]
    assert sorted(first_of_ranks) == (["u", "v"] if size else ["u", "u"])
    assert trainer.seen[-1].get("force_group_size") == size


# Greedy sessions.


@pytest.mark.parametrize("name", ["remax", "safe_remax"])
def test_prompts_get_one_session_more_which_is_the_greedy_one(name: str) -> None:
    batch = Trainer(to_config(name, n=3))._next_train_batch(4)
    assert batch["__rollout_n__"].tolist() == [4] * 4 and batch[GREEDY_SESSION].tolist() == [3] * 4
    # As verl hands them to the sessions, and as it stores prompts for a resumed run.
    assert range(batch["__rollout_n__"][0])[-1] == int(batch[GREEDY_SESSION][0])
    assert isinstance(batch.get(GREEDY_SESSION), torch.Tensor)


def test_group_sizes_of_a_curriculum_are_kept_and_get_one_more() -> None:
    config = to_config("remax", n=3)
    config.sizes = [1, 5]
    batch = Trainer(config)._next_train_batch()
    assert batch["__rollout_n__"].tolist() == [2, 6] and batch[GREEDY_SESSION].tolist() == [1, 5]


def test_other_estimators_have_no_greedy_sessions(queue: StoredRows) -> None:
    trainer = Trainer(to_config("grpo"))
    assert set(trainer._next_train_batch().keys()) == {"index"}
    played(queue, {"u_0_0": 1.0, "u_1_0": 0.0, "u_2_0": 1.0})
    assert len(trainer._balance_batch(queue.meta(), {})) == 3


def advantages(trainer: Any, queue: StoredRows, metrics: dict[str, Any]) -> dict[str, list[float]]:
    """Runs a batch through balancing and advantages; returns those of every row, as they are stored."""
    batch = trainer._balance_batch(queue.meta(), {})
    batch = trainer._compute_advantage(batch, metrics)
    return {key: queue.rows[key]["advantages"].tolist() for key in batch.keys}


@pytest.mark.parametrize("name", ["remax", "safe_remax"])
def test_greedy_sessions_are_baselines_and_are_gone_before_the_batch_is_balanced(queue: StoredRows, name: str) -> None:
    played(queue, {"u_2_0": 0.25, "u_0_0": 1.0, "v_0_0": 1.0, "u_1_0": 0.0, "v_2_0": 1.0, "v_1_0": 0.5})
    trainer = Trainer(to_config(name))
    got = advantages(trainer, queue, {})
    assert got == {"u_0_0": [0.75] * 2, "v_0_0": [0.0] * 2, "u_1_0": [-0.25] * 2, "v_1_0": [-0.5] * 2}
    assert trainer.seen[-1] == list(got), "greedy sessions are not balanced"
    assert set(queue.tags["train"]) == set(got), "nor left behind"


@pytest.mark.parametrize("name", ["remax", "safe_remax"])
def test_rows_whose_greedy_session_is_void_are_taken_out_and_counted(queue: StoredRows, name: str) -> None:
    played(queue, {"u_0_0": 1.0, "u_2_0": 1.0, "v_0_0": 1.0, "v_1_0": 0.0, "v_2_0": 0.5})
    queue.rows["u_2_0"]["response_mask"] = torch.tensor([0, 0])
    metrics: dict[str, Any] = {}
    got = advantages(Trainer(to_config(name)), queue, metrics)
    assert got == {"u_0_0": [0.0] * 2, "v_0_0": [0.5] * 2, "v_1_0": [-0.5] * 2}
    assert metrics["credit/nonfinite_sessions"] == 1


@pytest.mark.parametrize(
    ("rows", "place"),
    [([0.25, 0.0, 0.5], "last"), ([0.75, 0.75, 0.75], None)],  # ours: what each earned; verl's: copies
)
def test_a_greedy_session_of_three_rows_earned_what_it_earned(
    queue: StoredRows, rows: list[float], place: str | None
) -> None:
    played(queue, {f"u_2_{index}": reward for index, reward in enumerate(rows)}, place=place)
    played(queue, {"u_0_0": 1.0, "u_1_0": 0.0})
    assert advantages(Trainer(to_config("remax")), queue, {}) == {"u_0_0": [0.25] * 2, "u_1_0": [-0.75] * 2}


def test_a_resumed_run_goes_on_with_prompts_that_have_no_greedy_session(queue: StoredRows) -> None:
    played(queue, {"old_0_0": 1.0, "u_0_0": 1.0, "old_1_0": 0.0, "u_2_0": 0.5}, greedy=(None, 2))
    got = advantages(Trainer(to_config("remax")), queue, {})
    assert got == {"old_0_0": [0.0] * 2, "u_0_0": [0.5] * 2, "old_1_0": [0.0] * 2}


# What is handed over.


def _captured(trainer: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns the columns that a batch's estimator would see."""
    seen: dict[str, Any] = {}

    def compute_advantage(self: Any, batch: Any, metrics: Any) -> Any:
        seen.update(current_context().columns)
        return batch

    monkeypatch.setattr(Verl, "_compute_advantage", compute_advantage)
    trainer._compute_advantage(batch, {})
    assert not current_context().columns, "it holds for one call"
    return seen


def test_columns_of_the_agent_loop_reach_the_estimator(queue: StoredRows, monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {"sum_pi_squared": torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])}
    queue.put_row("u_0_0", [0, 0, 1], turn_ids=torch.tensor([0, 0, 1]), shared_ids=torch.tensor([7, 7, -1]), **more)
    # verl's padding: a copy of the first row, with a response of one token.
    padding: dict[str, Any] = {
        "turn_ids": torch.tensor([0, 0, 1, 1, 2]),
        "shared_ids": torch.tensor([7, 7, -1, -1, -1]),
    }
    queue.put_row("pad_0_0", [0], mask=[0], sum_pi_squared=torch.tensor([0.9, 0.8, 0.7]), tag={"uses": 3}, **padding)
    queue.put_row("v_0_0", [0, 0], turn_ids=torch.tensor([0, 3]), shared_ids=torch.tensor([-1, -1]), **more)
    queue.rows["v_0_0"]["sum_pi_squared"] = more["sum_pi_squared"][:4]
    for stored in queue.rows.values():
        stored["target_values"] = 10 * stored["sum_pi_squared"]
    queue.rows["v_0_0"]["data_source"] = "others"
    queue.rows["v_0_0"]["extra_fields"] |= {"agentic_place": "side", "agentic_agent": "reviewer"}
    seen = _captured(Trainer(to_config()), queue.meta(), monkeypatch)
    assert seen["turn_ids_BT"].tolist() == [[0, 0, 1], [0, 0, 1], [0, 3, 0]]
    assert seen["shared_BT"].tolist() == [[7, 7, -1], [7, 7, -1], [-1, -1, -1]]
    # Position p of the model says something about token p + 1; two tokens of the prompt come first.
    torch.testing.assert_close(seen["sum_pi_squared_BT"], torch.tensor([[0.2, 0.3, 0.4], [0.8, 0, 0], [0.2, 0.3, 0]]))
    torch.testing.assert_close(seen["target_values_BT"], 10 * seen["sum_pi_squared_BT"])
    assert seen["source_B"].tolist() == [0, 0, 1] and seen["uses_B"].tolist() == [1, 3, 1]
    assert seen["is_side_B"].tolist() == [False, False, True] and seen["agents"] == ("", "", "reviewer")


def test_parts_that_some_rows_lack_are_nan_there(queue: StoredRows, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.put_row("u_0_0", [0, 1], info={"acc": 1.0, "format": np.float32(0.5), "note": "text"})
    queue.put_row("u_1_0", [0, 0], info={"acc": 0.0})
    queue.rows["u_1_0"]["extra_fields"].pop("agentic_place")
    seen = _captured(Trainer(to_config()), queue.meta(), monkeypatch)
    assert {name: part.tolist() for name, part in seen["parts"].items() if name != "format"} == {"acc": [1.0, 0.0]}
    assert seen["parts"]["format"][0] == 0.5 and math.isnan(seen["parts"]["format"][1])
    assert "is_side_B" not in seen and "steps" not in seen, "other loops know neither"


def test_rows_of_other_loops_need_no_extra_fields(queue: StoredRows, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.put_row("u_0_0", [0, 1])
    for name in ("extra_fields", "data_source"):
        del queue.rows["u_0_0"][name]
    assert set(_captured(Trainer(to_config()), queue.meta(), monkeypatch)) == {"uses_B", "text_B"}


def test_a_part_that_a_void_row_lacks_does_not_stop_gdpo(queue: StoredRows) -> None:
    for session, (acc, style) in enumerate([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]):
        queue.put_row(f"u_{session}_0", [0, acc], old_log_probs=torch.zeros(2), info={"acc": acc, "style": style})
    queue.put_row("u_3_0", [0, 0], mask=[0, 0], old_log_probs=torch.zeros(2), info={"acc": 0.0})
    got = advantages(Trainer(to_config("gdpo", gdpo_reward_keys=["acc", "style"])), queue, {})
    assert got["u_3_0"] == [0, 0] and got["u_0_0"] == got["u_1_0"] and got["u_2_0"][0] > 0 > got["u_0_0"][0]


# What losses need.


def test_losses_of_ours_get_groups_their_sizes_and_outcomes(queue: StoredRows) -> None:
    played(queue, {"u_0_0": 1.0, "v_0_0": 0.0, "u_1_0": 0.0}, info={"acc": 1.0})
    batch = Trainer(to_config(loss="pacs"))._compute_advantage(queue.meta(), {})
    stored = [queue.rows[key] for key in batch.keys]
    assert [int(row["credit_group"]) for row in stored] == [0, 1, 0]
    assert [int(row["credit_group_size"]) for row in stored] == [2, 1, 2]
    assert [float(row["credit_outcome"]) for row in stored] == [1.0] * 3
    assert {"credit_group", "credit_group_size", "credit_outcome", "advantages"} <= set(batch.fields), "verl ships them"


def test_vapo_gets_the_share_of_tokens_in_successes(queue: StoredRows) -> None:
    for key, count, acc in (("u_0_0", 3, 1.0), ("u_1_0", 5, 0.0), ("v_0_0", 2, 1.0)):
        queue.put_row(key, [0.0] * count, old_log_probs=torch.zeros(count), info={"acc": acc})
    queue.rows["u_1_0"]["response_mask"][1] = 0
    batch = Trainer(to_config(loss="vapo"))._compute_advantage(queue.meta(), {})
    assert [float(queue.rows[key]["credit_positive_share"]) for key in batch.keys] == pytest.approx([5 / 9] * 3)
    assert {"credit_outcome", "credit_positive_share"} <= set(batch.fields), "verl ships them"
    for stored in queue.rows.values():
        stored["extra_fields"]["reward_extra_info"] = {"score": 1.0}
    with pytest.raises(ConfigError, match="vapo"):
        Trainer(to_config(loss="vapo"))._compute_advantage(queue.meta(), {})


@pytest.mark.parametrize(
    ("loss", "key"),
    [
        ("advantage_entropy", "actor_rollout_ref.actor.calculate_entropy"),
        ("rl_plus", "actor_rollout_ref.rollout.custom.agentic.external_sessions"),
    ],
)
def test_a_loss_without_its_inputs_is_refused(loss: str, key: str) -> None:
    config = to_config(loss=loss)
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
        check_loss(config)
    OmegaConf.update(config, key, True, force_add=True)
    check_loss(config)


def test_session_weights_are_refused_where_the_loss_ignores_them() -> None:
    config = to_config(loss="geo_mean")
    check_loss(config)
    config.actor_rollout_ref.actor.policy_loss.per_session = True
    with pytest.raises(ConfigError, match="geo_mean"):
        check_loss(config)


def test_vapo_is_refused_where_its_mean_would_be_another_one() -> None:
    config = to_config(loss="vapo")
    config.actor_rollout_ref.actor.loss_agg_mode = "seq-mean-token-mean"
    with pytest.raises(ConfigError, match="loss_agg_mode"):
        check_loss(config)


def test_verls_own_losses_get_nothing_more(queue: StoredRows) -> None:
    played(queue, {"u_0_0": 1.0, "u_1_0": 0.0})
    batch = Trainer(to_config())._compute_advantage(queue.meta(), {})
    assert not [name for name in batch.fields if name.startswith("credit_")] and "advantages" in batch.fields


def test_sdpo_without_outcomes_says_what_is_missing(queue: StoredRows) -> None:
    queue.put_row("u_0_0", [0, 1], old_log_probs=torch.zeros(2), info={"score": 1.0})
    with pytest.raises(ConfigError, match="'score'"):
        Trainer(to_config(loss="sdpo"))._compute_advantage(queue.meta(), {})
    del queue.rows["u_0_0"]["extra_fields"]
    with pytest.raises(ConfigError, match="acc"):
        Trainer(to_config(loss="sdpo"))._compute_advantage(queue.meta(), {})


class Deaf:
    """A worker group whose policy writes the same of every prompt."""

    world_size = 1

    def __init__(self, queue: StoredRows) -> None:
        self.queue = queue

    def compute_log_prob(self, batch: Any) -> None:
        for key in batch.keys:
            self.queue.rows[key]["log_probs"] = torch.full((len(self.queue.rows[key]["input_ids"]),), -1.0)


@pytest.mark.parametrize(("step", "is_measured"), [(1, True), (2, False), (4, True)])
def test_prompts_and_texts_are_compared_every_few_steps(queue: StoredRows, step: int, is_measured: bool) -> None:
    played(queue, {"u_0_0": 1.0, "v_0_0": 0.0}, greedy=[None])
    queue.rows["v_0_0"]["prompts"] = torch.tensor([3, 4])
    config = to_config(prompt_information={"every": 3})
    config.actor_rollout_ref.rollout.update(log_prob_use_dynamic_bsz=True, log_prob_max_token_len_per_gpu=4096)
    trainer: Any = Trainer(config)
    trainer.global_steps, trainer.local_trigger_step, trainer.actor_rollout_wg = step, 0, Deaf(queue)
    metrics: dict[str, Any] = {}
    batch = trainer._compute_advantage(queue.meta(), metrics)
    assert list(batch.keys) == ["u_0_0", "v_0_0"] and "advantages" in batch.fields
    assert ("batch/prompt_information" in metrics) == is_measured
    if is_measured:
        assert metrics["batch/prompt_information"] == pytest.approx(0.0, abs=1e-9)
        assert metrics["batch/prompt_retrieval"] == 0.0
        trainer.local_trigger_step = 1  # a later batch of the same step
        trainer._compute_advantage(queue.meta(), metrics := {})
        assert "batch/prompt_information" not in metrics


def test_the_model_is_asked_for_what_is_needed_only(queue: StoredRows) -> None:
    played(queue, {"u_0_0": 1.0})
    queue.rows["u_0_0"]["mean_log_prob"] = torch.tensor([-1.0, -2.0, -3.0, -4.0])

    def asked(name: str, loss: str) -> dict[str, Any]:
        trainer = Trainer(to_config(name, loss=loss))
        trainer._compute_old_log_prob(queue.meta(), {})
        return trainer.seen[-1]

    plain = {"calculate_sum_pi_squared": False, "calculate_mean_log_prob": False}
    assert asked("grpo", "vanilla") == plain and "old_mean_log_prob" not in queue.rows["u_0_0"]
    of_a_user = "verl_agentic.methods.advantages.token_baseline:token_baseline"
    for name in ("token_baseline", "optimal_token_baseline", "tir_optimal_token_baseline", of_a_user):
        assert asked(name, "vanilla") == {**plain, "calculate_sum_pi_squared": True}
    for loss in ("rover", "verl_agentic.methods.policy_losses.rover:rover"):
        assert asked("grpo", loss) == {**plain, "calculate_mean_log_prob": True}
    assert queue.rows["u_0_0"]["old_mean_log_prob"].tolist() == [-2.0, -3.0], "of the response's tokens"


def test_the_learning_rate_falls_with_the_length_of_what_was_sampled(queue: StoredRows) -> None:
    queue.put_row("u_0_0", [0] * 6, mask=[1, 1, 0, 0, 1, 1])
    queue.put_row("u_1_0", [0] * 8)
    queue.put_row("pad_0_0", [0], mask=[0])
    trainer = Trainer(to_config(length_lr={"reference_tokens": 3}))
    metrics: dict[str, Any] = {}
    trainer._update_actor(queue.meta(), metrics)
    assert trainer.seen[-1]["lr_scale"] == metrics["actor/lr_scale"] == 0.5  # 3 of (4 + 8) / 2
    trainer = Trainer(to_config())
    trainer._update_actor(queue.meta(), {})
    assert "lr_scale" not in trainer.seen[-1]


def test_the_learning_rate_falls_in_a_line_over_the_run_and_with_the_length(queue: StoredRows) -> None:
    queue.put_row("u_0_0", [0] * 6)
    trainer = Trainer(to_config(linear_lr={"min_ratio": 0.2}))
    trainer.global_steps = 3  # half of 4 are done
    trainer._update_actor(queue.meta(), metrics := {})
    assert trainer.seen[-1]["lr_scale"] == metrics["actor/lr_scale"] == pytest.approx(0.6)
    trainer = Trainer(to_config(linear_lr={"min_ratio": 0.2}, length_lr={"reference_tokens": 3}))
    trainer.global_steps = 3
    trainer._update_actor(queue.meta(), {})
    assert trainer.seen[-1]["lr_scale"] == pytest.approx(0.3)


# Greedy sessions in the agent loop.


async def test_only_the_greedy_session_of_a_prompt_is_played_greedily() -> None:
    played: dict[int, dict[str, Any]] = {}

    async def original(self: Any, sampling_params: Any, trajectory: Any, *, session_id: int, **kwargs: Any) -> None:
        played[session_id] = sampling_params

    params = {**SAMPLING, "top_k": 50}
    run = functools.partial(agent_loop._run_as_asked, original)
    for session in range(3):
        greedy = {GREEDY_SESSION: torch.tensor(2)}  # verl hands a column's element
        await run(None, params, {"validate": False}, session_id=session, **greedy)
    assert played[0] == played[1] == params
    assert played[2] == {**params, "temperature": 0, "top_p": 1.0, "top_k": -1}
    await run(None, params, {"validate": False}, session_id=2)
    assert played[2] == params, "a prompt without the column has none"


async def test_a_greedy_session_begins_as_its_siblings_do_and_leaves_nothing_to_chance(
    tmp_path: Path, tiny_chat: Chat
) -> None:
    stage = make_stage(tmp_path, tiny_chat[0])
    exploration = {"epsilon_tool": 1.0, "partial_solution": 1.0}
    kwargs = row(extra_info={"how": "", "index": 0, "partial_solution": "First I think."})

    async def played(temperature: float, **forced: float) -> dict[str, Any]:
        loop = stage.loop(Servers(stage.tokenizer, ["It is 42."]), exploration=forced)
        (output,) = await loop.run({**SAMPLING, "temperature": temperature}, **kwargs)
        return output.as_dict()

    plain, begun = await played(0), await played(0, partial_solution=1.0)
    assert len(begun["responses"]) > len(plain["responses"]), "a part of the task"
    assert (await played(0, **exploration))["responses"].tolist() == begun["responses"].tolist()
    tool = (await played(1.0, epsilon_tool=1.0))["responses"].tolist()
    assert tool != plain["responses"].tolist(), "chance"
    assert (await played(0, epsilon_tool=1.0))["responses"].tolist() == plain["responses"].tolist()


def test_losses_per_session_get_the_tokens_of_the_session_that_are_left(queue: StoredRows) -> None:
    queue.put_row("u_0_0", [0.0, 0.0], place="earlier")
    queue.put_row("u_0_1", [0.0, 0.0, 1.0], mask=[1, 0, 1])
    queue.put_row("u_1_0", [0.0], mask=[0])
    stored = _store_session_weights(queue.meta())
    assert stored.keys == ["u_0_0", "u_0_1", "u_1_0"]
    assert [float(queue.rows[key]["credit_session_weight"]) for key in stored.keys] == [0.25, 0.25, 0.0]
