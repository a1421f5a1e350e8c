"""Checks on plain data, for cases that no configuration file shows."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.finding import Finding
from verl_agentic.checks.preflight.checks.attention_kernels import attention_kernels
from verl_agentic.checks.preflight.checks.batch_sizes import batch_sizes
from verl_agentic.checks.preflight.checks.context_length import context_length
from verl_agentic.checks.preflight.checks.data_files import data_files
from verl_agentic.checks.preflight.checks.dead_knobs import KNOBS, dead_knobs
from verl_agentic.checks.preflight.checks.discount import discount
from verl_agentic.checks.preflight.checks.dynamic_sampling import dynamic_sampling
from verl_agentic.checks.preflight.checks.episode_settings import episode_settings
from verl_agentic.checks.preflight.checks.estimator import estimator
from verl_agentic.checks.preflight.checks.holdout import holdout
from verl_agentic.checks.preflight.checks.learning import learning
from verl_agentic.checks.preflight.checks.loggers import loggers
from verl_agentic.checks.preflight.checks.machine import machine
from verl_agentic.checks.preflight.checks.policy_loss import policy_loss
from verl_agentic.checks.preflight.checks.reward import reward
from verl_agentic.checks.preflight.checks.rollout_engine import rollout_engine
from verl_agentic.checks.preflight.checks.rows import rows
from verl_agentic.checks.preflight.checks.switched_off import SWITCHES, switched_off
from verl_agentic.checks.preflight.checks.tool_limits import tool_limits
from verl_agentic.checks.preflight.checks.unknown_keys import unknown_keys
from verl_agentic.checks.preflight.derived import derived_numbers
from verl_agentic.checks.preflight.planned_run import GoldTrial, Model, PlannedRun, Rows, SharedRows
from verl_agentic.checks.preflight.result import check_names, guarded, judge, load_check
from verl_agentic.checks.preflight.run_sizes import POSITIVE, data_parallel, padded_samples
from verl_agentic.credit.advantage import advantage_names, load_advantage
from verl_agentic.credit.cudnn_attention import VARIABLE

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def tree(values: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *sections, key = path.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return nested


def planned(values: dict[str, Any], *, defaults: dict[str, Any] | None = None, **found: Any) -> PlannedRun:
    return PlannedRun(config=tree(values), defaults=tree(defaults or {}), **found)


def statuses(verdicts: Any) -> list[str]:
    return [verdict.status for verdict in verdicts]


SIZES = {
    "data.train_batch_size": 12,
    f"{ACTOR}.strategy": "fsdp2",
    f"{ACTOR}.ppo_mini_batch_size": 8,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": True,
    f"{ROLLOUT}.n": 4,
    f"{ROLLOUT}.prompt_length": 100,
    f"{ROLLOUT}.response_length": 300,
    "algorithm.adv_estimator": "grpo",
    "trainer.n_gpus_per_node": 4,
    "trainer.nnodes": 2,
    "trainer.v1.trainer_mode": "sync",
}


def test_every_check_is_found_by_its_file_and_stands_a_run_of_which_little_is_known() -> None:
    assert {"unknown_keys", "dead_knobs", "tools", "reward"} <= set(check_names())
    assert all(load_check(name).__name__ == name for name in check_names())
    assert derived_numbers(planned({})) == []
    run = planned(SIZES, is_read=lambda name: True)
    assert [result for result in judge(run) if result.status == "fail"] == []


@pytest.mark.parametrize("section", ["actor_rollout_ref.model", "critic.model", "model"])
def test_cudnns_attention_is_warned_of_where_the_environment_chooses_it(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu = {"trainer.device": "cuda", f"{section}.override_config.attn_implementation": "sdpa"}
    chosen = {f"ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}": "0"}
    monkeypatch.delenv(VARIABLE, raising=False)
    assert statuses(attention_kernels(planned(on_gpu))) == ["ok"]
    assert statuses(attention_kernels(planned({**on_gpu, **chosen}))) == ["warn"]
    assert statuses(attention_kernels(planned({**on_gpu, **chosen, "trainer.device": "cpu"}))) == ["ok"]
    monkeypatch.setenv(VARIABLE, "0")
    assert statuses(attention_kernels(planned(on_gpu))) == ["warn"]
    eager = {f"{section}.override_config.attn_implementation": "eager"}
    assert statuses(attention_kernels(planned({**on_gpu, **eager}))) == ["ok"]


def test_samples_are_padded_to_whole_mini_batches_and_that_is_told() -> None:
    run = planned(SIZES)
    assert data_parallel(run) == 8
    assert padded_samples(run) == 64  # 12 x 4 = 48 samples, mini-batches of 8 x 4 = 32
    (told,) = batch_sizes(run)
    assert told.status == "warn" and "48 samples are padded to 64" in told.found


def test_sequence_parallel_ranks_share_their_data() -> None:
    run = planned({**SIZES, f"{ACTOR}.ulysses_sequence_parallel_size": 4})
    assert data_parallel(run) == 2


def test_micro_batches_must_divide_the_share_of_a_rank_only_without_token_budgets() -> None:
    fixed = {
        **SIZES,
        "data.train_batch_size": 16,
        f"{ACTOR}.use_dynamic_bsz": False,
        f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3,
    }
    (refused,) = batch_sizes(planned(fixed))  # 8 x 4 / 8 ranks = 4
    assert refused.status == "fail" and "4 samples of a mini-batch are no multiple" in refused.found
    assert statuses(batch_sizes(planned({**fixed, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2}))) == ["ok"]


def test_separate_async_needs_its_own_arithmetic_gpus_and_backend() -> None:
    separate = {
        **SIZES,
        "data.train_batch_size": 16,
        "trainer.v1.trainer_mode": "separate_async",
        "trainer.v1.separate_async.parameter_sync_step": 4,
        f"{ROLLOUT}.checkpoint_engine.backend": "naive",
        f"{ROLLOUT}.nnodes": 0,
        f"{ROLLOUT}.n_gpus_per_node": 8,
    }
    told = " | ".join(v.found for v in batch_sizes(planned(separate)) if v.status == "fail")
    assert "got 16 and 4 x 8" in told and "rollout.nnodes above 0" in told and "backend=naive" in told


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.path)
def test_a_dead_knob_is_found_when_it_is_set_and_not_when_it_is_as_verl_has_it(knob: Any) -> None:
    context = {
        f"{ROLLOUT}.agent.default_agent_loop": "env_agent",
        "trainer.v1.sampler.custom_sampler.path": "pkg://x",
        "trainer.v1.trainer_mode": "colocate_async",
    }
    assert statuses(dead_knobs(planned({**context, knob.path: 7}, defaults={knob.path: 7}))) == ["ok"]
    (told,) = dead_knobs(planned({**context, knob.path: 7}, defaults={knob.path: 3}))
    assert (
        told.status == ("fail" if knob.spoils else "warn") and knob.path in told.found and told.advice == knob.instead
    )
    for value in knob.harmless:
        assert statuses(dead_knobs(planned({**context, knob.path: value}, defaults={knob.path: None}))) == ["warn"]


def test_shared_prompts_have_an_effect_with_the_attention_and_the_kernels_that_they_need() -> None:
    model = "actor_rollout_ref.model"
    settings = {
        f"{model}.use_fused_kernels": True,
        f"{model}.fused_kernel_options.impl_backend": "sampled",
        f"{model}.fused_kernel_options.shared_prompts": True,
        f"{model}.override_config.attn_implementation": "sdpa",
    }
    assert statuses(dead_knobs(planned(settings))) == ["ok"]
    (finding,) = dead_knobs(planned({**settings, f"{model}.override_config.attn_implementation": "flash_attention_2"}))
    assert finding.status == "warn" and "attn_implementation=sdpa" in finding.advice


def test_keys_are_known_by_the_class_of_their_section_else_by_who_reads_them() -> None:
    defaults = {"trainer.save_freq": -1, "critic.lr": 1.0, "ray_kwargs.ray_init.num_cpus": None}
    run = planned(
        {
            **defaults,
            "critic.warmup": 3,
            "critic.wamup": 3,
            "trainer.read_elsewhere": 1,
            "trainer.save_frq": 1,
            "trainer.vouched.deep": 1,
            "ray_kwargs.ray_init.anything": 1,
        },
        defaults=defaults,
        fields={"critic": frozenset({"lr", "warmup"})},
        is_read={"read_elsewhere", "save_frq", "wamup"}.__contains__,
        allowed=["trainer.vouched"],
    )
    told = {verdict.found: verdict.advice for verdict in unknown_keys(run)}
    assert set(told) == {"nothing reads critic.wamup", "nothing reads trainer.save_frq"}
    assert "did you mean trainer.save_freq?" in told["nothing reads trainer.save_frq"]


def test_a_filter_by_the_shaped_reward_is_warned_of_and_an_unknown_metric_is_not_judged() -> None:
    by = {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "reward"}
    assert statuses(dynamic_sampling(planned(by))) == ["warn"]
    by["algorithm.filter_groups.metric"] = "own"
    assert statuses(dynamic_sampling(planned(by))) == ["not tested"]
    assert statuses(dynamic_sampling(planned(by, metrics=frozenset({"acc"})))) == ["fail"]
    assert statuses(dynamic_sampling(planned(by, metrics=frozenset({"own"})))) == ["ok"]


@pytest.mark.parametrize(
    ("name", "gamma", "tokens", "found"),
    [
        # 0.99 ** 300 = 0.049 of the outcome, 0.999 ** 300 = 0.741.
        ("gae", 0.99, 300, ["warn"]),
        ("gae", 0.999, 300, ["ok"]),
        ("reinforce_plus_plus", 0.99, 300, ["warn"]),
        ("gae", 1.0, 300, []),
        ("grpo", 1.0, 300, []),
    ],
)
def test_a_discount_that_eats_the_outcome_is_warned_of(name: str, gamma: float, tokens: int, found: list[str]) -> None:
    values = {"algorithm.adv_estimator": name, "algorithm.gamma": gamma, "data.max_response_length": tokens}
    verdicts = discount(planned(values))
    assert statuses(verdicts) == found
    assert "warn" not in found or "gamma 0.99 leaves 0.049 of an outcome after 300 steps" in verdicts[0].found


@pytest.mark.parametrize("name", advantage_names())
def test_every_discount_of_ours_is_judged_in_its_own_steps(name: str) -> None:
    values = {
        "algorithm.adv_estimator": name,
        "data.max_response_length": 1000,
        f"{ROLLOUT}.agent.default_agent_loop": "env_agent",
        f"{ROLLOUT}.custom.agentic.limits.max_turns": 4,
    }
    by = load_advantage(name).discounts
    # 0.9 ** 4 = 0.656 of the outcome, 0.9 ** 1000 nothing.
    options = {f"algorithm.credit.options.{option}": 0.9 for option in by}
    assert sorted(statuses(discount(planned({**values, **options})))) == sorted(
        {"turn": "ok", "token": "warn"}[step] for step in by.values()
    )
    (ignored,) = discount(planned({**values, **dict.fromkeys(options, 1.0), "algorithm.gamma": 0.9}))
    assert ignored.status == "warn" and "algorithm.gamma=0.9 has no effect" in ignored.found


@pytest.mark.parametrize("name", advantage_names())
def test_a_group_of_one_fails_for_every_estimator_that_compares_siblings(name: str) -> None:
    values = {"algorithm.adv_estimator": name, "trainer.v1.trainer_mode": "agentic_sync", f"{ROLLOUT}.n": 1}
    expected = "fail" if load_advantage(name).compares_siblings else "ok"
    assert statuses(estimator(planned(values))) == [expected]
    assert statuses(estimator(planned({**values, f"{ROLLOUT}.n": 2}))) == ["ok"]
    distilled = {"distillation.enabled": True, "distillation.distillation_loss.use_task_rewards": False}
    assert statuses(estimator(planned({**values, **distilled}))) == ["ok"]
    for option, value in load_advantage(name).unless.items():
        assert statuses(estimator(planned({**values, f"algorithm.credit.options.{option}": value}))) == ["ok"]


def test_our_trainers_have_the_arithmetic_of_verl_s() -> None:
    ours = planned({**SIZES, "trainer.v1.trainer_mode": "agentic_sync", "data.gen_batch_size": 8})
    verls = planned({**SIZES, "data.gen_batch_size": 8})
    names = {"batch_sizes", "dead_knobs"}
    found, theirs = ([one for one in judge(run) if one.check in names] for run in (ours, verls))
    assert found == theirs
    mode = {"trainer.v1.trainer_mode": "agentic_separate_async", "trainer.v1.separate_async.parameter_sync_step": 4}
    assert planned({**SIZES, **mode}).parameter_sync_step == 4


@pytest.mark.parametrize(
    ("train", "val", "found"),
    [("a", "b", ["not tested"]), ("a", "a", ["warn"]), (["a", "b"], ["c", "b"], ["warn"]), ("a", None, [])],
)
def test_validation_on_training_rows_is_warned_of(train: Any, val: Any, found: list[str]) -> None:
    assert statuses(holdout(planned({"data.train_files": train, "data.val_files": val}))) == found


@pytest.mark.parametrize(
    ("exact", "near", "compared", "expected"),
    [
        (1, 0, 9, "warn: 1 of 9"),
        (0, 2, 9, "warn: 2 of 9"),
        (0, 0, 9, "ok: validation has"),
        (0, 0, 5, "ok: none of the first 5"),
    ],
)
def test_training_rows_that_are_validation_rows_are_warned_of(
    exact: int, near: int, compared: int, expected: str
) -> None:
    files = {"data.train_files": "train", "data.val_files": "val"}
    shared = SharedRows(exact=exact, near=near, compared=compared)
    (said,) = holdout(planned(files, rows=Rows(count=9, agent_names={}), shared_rows=shared))
    assert f"{said.status}: {said.found}".startswith(expected)


def test_rows_that_could_not_be_compared_are_not_called_different() -> None:
    rows = Rows(count=9, agent_names={})
    files = {"data.train_files": "train", "data.val_files": "val"}
    assert statuses(holdout(planned(files, rows=rows, val_rows=rows, shared_rows=None))) == ["not tested"]


def test_deadlines_that_are_shorter_than_the_code_in_them_fail_and_say_what_to_set() -> None:
    values = {f"{ROLLOUT}.agent.default_agent_loop": "env_agent", f"{ROLLOUT}.custom.agentic.env": "swe"}
    values |= {f"{ROLLOUT}.response_length": 100, f"{ROLLOUT}.prompt_length": 100}
    short = ["scoring has 60 s, and code in it may run 180 s", "tool 'bash' has 30 s, and code in it may run 60 s"]
    found = episode_settings(planned(values, problems={"deadlines": short}))
    assert statuses(found) == ["fail", "warn"] and "score_timeout_s" in str(found[0])
    assert statuses(episode_settings(planned(values))) == ["ok"]


def test_limits_of_tools_are_judged_for_the_loop_that_has_them() -> None:
    turns = f"{ROLLOUT}.multi_turn"
    values = {
        f"{ROLLOUT}.agent.default_agent_loop": "tool_agent",
        f"{turns}.max_tool_response_length": 4096,
        f"{turns}.max_parallel_calls": 1,
        f"{turns}.max_assistant_turns": 4,
    }
    assert statuses(tool_limits(planned(values, tools=["bash"]))) == ["warn"]  # one call a turn
    assert tool_limits(planned(values)) == []
    copied = {**values, f"{turns}.max_parallel_calls": 4, "data.max_response_length": 4096}
    assert statuses(tool_limits(planned(copied, tools=["bash"]))) == ["fail"], "a number of tokens as characters"
    ours = {**values, f"{ROLLOUT}.agent.default_agent_loop": "env_agent"}
    (told,) = tool_limits(planned(ours, defaults={f"{turns}.max_parallel_calls": 1}))
    assert "max_tool_response_length=4096 has no effect" in told.found


@pytest.mark.parametrize(
    ("trial", "status"),
    [
        (GoldTrial(row=0, outcome=1.0, why="2 turns"), "ok"),
        (GoldTrial(row=0, outcome=0.5, why="2 turns"), "fail"),
        (GoldTrial(row=0, outcome=1.0, why="2 turns", parts={"f1": 0.5}), "fail"),
        (GoldTrial(row=0, outcome=None, why="no sandbox"), "not tested"),
        (GoldTrial(row=0, outcome=None, why="KeyError", is_fault=True), "fail"),
    ],
)
def test_a_right_answer_must_earn_all_of_every_outcome(trial: GoldTrial, status: str) -> None:
    assert statuses(reward(planned({}, gold=[trial]))) == [status]


def test_a_logger_that_is_not_installed_or_not_logged_in_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned({"trainer.logger": ["console", "wandb"]})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert statuses(loggers(run)) == ["fail"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert statuses(loggers(run)) == ["ok"]


def test_derived_numbers_are_those_of_a_hand_calculation() -> None:
    values = {
        **SIZES,
        f"{ACTOR}.ppo_epochs": 2,
        f"{ACTOR}.ppo_max_token_len_per_gpu": 1000,
        f"{ROLLOUT}.max_num_seqs": 3,
        f"{ROLLOUT}.tensor_model_parallel_size": 2,
        f"{ROLLOUT}.agent.default_agent_loop": "env_agent",
        f"{ROLLOUT}.agent.num_workers": 2,
        f"{ROLLOUT}.custom.agentic.limits": {"max_turns": 3, "turn_timeout_s": 10, "start_timeout_s": 5,
                                            "score_timeout_s": 4, "close_timeout_s": 2, "max_retries": 1},
        "trainer.total_epochs": 3,
    }  # fmt: skip
    run = planned(values, rows=Rows(count=50, agent_names={}), model=Model(max_tokens=400, kv_bytes_per_token=2**20))
    assert {number.name: number.value for number in derived_numbers(run)} == {
        "samples per step": 48,
        "rows per update batch": 64,
        "optimiser updates per step": 4,  # 64 / 32 x 2
        "steps": 12,  # 50 // 12 = 4 an epoch, x 3
        "tokens per GPU at most": 1000,
        "tokens per rank and update batch at most": 3200,  # 64 / 8 x 400
        "sandboxes at the peak": 48,
        "KV cache tokens at the peak": 4800,  # 4 servers of 2 GPUs x 3 = 12 sequences x 400
        "KV cache per server at the peak": 1.17,  # 4800 / 4 MiB
        "longest episode": 140,  # (5 + 3 x 2 x 10 + 4) x 2 + 2
        "worst rollout of a step": 140,
    }
    ahead = {**values, "trainer.v1.trainer_mode": "colocate_async", "trainer.v1.colocate_async.num_warmup_batches": 1.5}
    assert {n.name: n.value for n in derived_numbers(planned(ahead))}["sandboxes at the peak"] == 120  # 12 x 2.5 x 4


VLLM_ON_CPU = {"trainer.device": "cpu", f"{ROLLOUT}.name": "vllm"}
TIED = Model(max_tokens=None, kv_bytes_per_token=None, tied_parameters=2**20 * 30)


@pytest.mark.parametrize(
    ("version", "on_cpu", "on_gpu"),
    [
        ("0.17.1", "fail", "fail"),
        ("0.24.0", "fail", "ok"),
        ("0.27.1", "warn", "ok"),
        ("0.28.0", "ok", "ok"),
        ("0.28.0+cpu", "ok", "ok"),
        ("0.31.0", "warn", "ok"),
        ("0.32.0", "fail", "ok"),
    ],
)
def test_a_version_of_vllm_is_judged_for_its_platform(version: str, on_cpu: str, on_gpu: str) -> None:
    packages = {"vllm": version}
    assert statuses(rollout_engine(planned(VLLM_ON_CPU, packages=packages))) == [on_cpu]
    assert statuses(rollout_engine(planned({f"{ROLLOUT}.name": "vllm"}, packages=packages))) == [on_gpu]
    assert statuses(rollout_engine(planned({f"{ROLLOUT}.name": "agentic"}, packages=packages))) == ["ok"]


@pytest.mark.parametrize(
    ("version", "bucket_mb", "dtype", "expected"),
    [
        ("0.30.0", 119, "fp32", "fail"),
        ("0.30.0", 120, "fp32", "ok"),
        ("0.29.0", 119, "fp32", "fail"),
        ("0.28.0", 119, "fp32", "ok"),
        ("0.30.0", 60, "bfloat16", "ok"),
        ("0.30.0", 59, "bfloat16", "fail"),
    ],
)
def test_tied_weights_must_fit_into_one_bucket(version: str, bucket_mb: int, dtype: str, expected: str) -> None:
    values = {
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": bucket_mb,
        f"{ACTOR}.fsdp_config.model_dtype": dtype,
    }
    (verdict,) = rollout_engine(planned(values, packages={"vllm": version}, model=TIED))
    assert verdict.status == expected
    if expected == "fail":  # the advice works
        advised = int(verdict.advice.split("megabytes=")[1].split(",")[0])
        values[f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"] = advised
        assert statuses(rollout_engine(planned(values, packages={"vllm": version}, model=TIED))) == ["ok"]


@pytest.mark.parametrize(
    ("settings", "facts", "found"),
    [
        ({}, {"has_experts": True}, "a model with experts"),
        ({}, {"quantisation": "awq"}, "got awq"),
        ({f"{ROLLOUT}.quantization": "fp8"}, {}, "got fp8"),
        ({f"{ROLLOUT}.free_cache_engine": True}, {}, f"got {ROLLOUT}.free_cache_engine=True"),
        ({f"{ROLLOUT}.enable_sleep_mode": True}, {}, "cannot sleep"),
        ({f"{ROLLOUT}.tensor_model_parallel_size": 2}, {}, "tensor_model_parallel_size=2"),
    ],
)
def test_what_the_cpu_build_of_vllm_cannot_do_is_refused_on_a_cpu(
    settings: dict[str, Any], facts: dict[str, Any], found: str
) -> None:
    model = Model(max_tokens=None, kv_bytes_per_token=None, **facts)
    (refused,) = rollout_engine(planned({**VLLM_ON_CPU, **settings}, model=model))
    assert refused.status == "fail" and found in refused.found and refused.advice
    assert statuses(rollout_engine(planned({f"{ROLLOUT}.name": "vllm", **settings}, model=model))) == ["ok"]


def test_sglang_needs_a_position_more_than_prompt_and_response() -> None:
    values = {f"{ROLLOUT}.prompt_length": 100, f"{ROLLOUT}.response_length": 300}
    for name, longest, expected in (("sglang", 400, "fail"), ("sglang", 401, "ok"), ("vllm", 400, "ok")):
        run = planned({**values, f"{ROLLOUT}.name": name, f"{ROLLOUT}.enable_chunked_prefill": True})
        run = replace(run, model=Model(max_tokens=longest, kv_bytes_per_token=None))
        assert statuses(context_length(run)) == [expected]
        served = planned({**values, f"{ROLLOUT}.name": name, f"{ROLLOUT}.max_model_len": longest})
        assert name == "vllm" or ("fail" in statuses(context_length(served))) == (expected == "fail")


def test_own_checks_come_last_by_address_and_replace_none(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from verl_agentic.base.finding import fail\ndef rows(run):\n    return [fail('no name', 'set one')]\n"
    )
    run, address = planned(SIZES), f"{own}:rows"
    expected = Finding(check=address, status="fail", found="no name", advice="set one")
    assert judge(run, [address]) == [*judge(run), expected]
    with pytest.raises(ConfigError, match="no_such"):
        judge(run, [f"{own}:no_such"])


@pytest.mark.parametrize("key", ["train_files", "val_files"])
@pytest.mark.parametrize("written", [None, [], ""])
def test_a_run_without_training_or_validation_files_fails(key: str, written: Any) -> None:
    files = {"data.train_files": "train", "data.val_files": ["val"]}
    assert data_files(planned(files)) == []
    (found,) = data_files(planned({**files, f"data.{key}": written}))
    assert found.status == "fail" and f"data.{key}" in found.found and f"data.{key}" in found.advice


@pytest.mark.parametrize("path", POSITIVE)
@pytest.mark.parametrize("value", [0, -2, 0.5])
def test_a_size_below_1_is_a_finding_and_no_crash(path: str, value: float) -> None:
    run = planned({**SIZES, "critic.enable": True, path: value}, rows=Rows(count=64, agent_names={}))
    failed = [finding for finding in judge(run) if finding.status == "fail"]
    assert "sizes" in {finding.check for finding in failed}
    assert [finding for finding in failed if "cannot be judged" in finding.found] == []
    assert any(path in finding.found for finding in failed) and derived_numbers(run) == []


def test_a_check_that_raises_is_a_finding_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def mine(run):\n    return run.config['no_such_key']\n")
    (finding,) = [one for one in judge(planned(SIZES), [f"{tmp_path}/mine.py:mine"]) if "mine" in one.check]
    assert finding.status == "fail" and "KeyError" in finding.found and "mine.py:2" in finding.found
    numbers, failures = guarded("derived sizes", lambda run: [1 // 0], planned({}))
    assert numbers == [] and [one.check for one in failures] == ["derived sizes"]


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        ("lr", 0, "fail"),
        ("lr", -1e-6, "fail"),
        ("lr", 1e-12, "warn"),
        ("lr", 1.0, "warn"),
        ("lr", 1e-4, "ok"),
        ("clip_grad", 0, "fail"),
        ("clip_grad", -1.0, "fail"),
        ("lr_warmup_steps", 8, "warn"),
        ("lr_warmup_steps", 7, "ok"),
        ("lr_warmup_steps_ratio", 1.0, "warn"),
        ("lr_warmup_steps_ratio", 0.1, "ok"),
    ],
)
@pytest.mark.parametrize("section", [ACTOR, "critic"])
def test_an_optimiser_that_changes_nothing_is_found(section: str, key: str, value: float, status: str) -> None:
    values = {"trainer.total_training_steps": 8, f"{section}.optim.{key}": value, "critic.enable": True}
    assert statuses(learning(planned(values))) == [status]
    without_critic = learning(planned({**values, "critic.enable": False}))
    assert statuses(without_critic) == [status if section == ACTOR else "ok"]


@pytest.mark.parametrize("section", [ACTOR, "critic"])
@pytest.mark.parametrize(
    ("steps", "optim", "status"),
    [
        (1, {"lr_warmup_steps": 1}, "fail"),
        (1, {"lr_warmup_steps": 5}, "fail"),
        (1, {"lr_warmup_steps_ratio": 1.0}, "fail"),
        (1, {"lr_warmup_steps": 1, "lr_scheduler_type": "cosine"}, "fail"),
        (1, {"lr_warmup_steps": 0}, "ok"),
        (1, {"lr_warmup_steps_ratio": 0.5}, "ok"),  # verl rounds it down
        (2, {"lr_warmup_steps": 1}, "ok"),
    ],
)
def test_a_run_of_one_step_that_warms_up_changes_nothing(
    section: str, steps: int, optim: dict[str, Any], status: str
) -> None:
    values = {f"{section}.optim.{key}": value for key, value in optim.items()}
    run = planned({"trainer.total_training_steps": steps, "critic.enable": True, **values})
    assert statuses(learning(run)) == [status]


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(
    ("values", "is_warned"),
    [({}, True), ({"data.seed": 0}, False), ({"data.shuffle": False}, False)],
)
def test_rows_that_are_drawn_anew_at_each_start_are_found(split: str, values: dict[str, Any], is_warned: bool) -> None:
    drawn = {f"data.{split}_max_samples": 16, "data.shuffle": True, **values}
    run = planned(drawn, rows=Rows(count=64, agent_names={}))
    assert ("warn" in statuses(rows(run))) == is_warned
    assert "warn" not in statuses(rows(planned({**drawn, f"data.{split}_max_samples": -1}, rows=run.rows)))


@pytest.mark.parametrize("section", [ACTOR, "critic"])
@pytest.mark.parametrize("scale", [None, 512])
def test_a_loss_that_is_divided_by_the_longest_row_of_a_micro_batch_is_found(section: str, scale: int | None) -> None:
    values = {f"{section}.loss_agg_mode": "seq-mean-token-sum-norm", f"{section}.loss_scale_factor": scale}
    run = planned({f"{ACTOR}.policy_loss.loss_mode": "vanilla", "critic.enable": True, **values})
    assert ("warn" in statuses(policy_loss(run))) == (scale is None)
    assert "warn" not in statuses(policy_loss(planned({f"{section}.loss_agg_mode": "token-mean"})))


@pytest.mark.parametrize("name", ["clip_cov", "geo_mean", "kl_cov"])
def test_verls_losses_that_depend_on_micro_batches_are_found(name: str) -> None:
    assert "warn" in statuses(policy_loss(planned({f"{ACTOR}.policy_loss.loss_mode": name})))


def test_a_policy_that_waits_for_its_critic_to_the_end_is_found() -> None:
    values = {"trainer.total_training_steps": 8, "trainer.critic_warmup": 8, "critic.enable": True}
    assert statuses(learning(planned(values))) == ["fail"]


_TURNED_ON = {
    f"{ACTOR}.use_kl_loss": True,
    "algorithm.use_kl_in_reward": True,
    "algorithm.filter_groups.enable": True,
    "algorithm.rollout_correction.rollout_is": "token",
    "algorithm.rollout_correction.rollout_rs": "seq_mean_k1",
    "distillation.enabled": True,
    "reward.reward_model.enable": True,
    "reward.custom_reward_function.path": "mine.py",
    "trainer.resume_mode": "resume_path",
    "trainer.save_freq": 5,
    "critic.enable": True,
    "actor_rollout_ref.model.lora_rank": 8,
    f"{ROLLOUT}.custom.agentic.log.dir": "runs",
}
_LOSS = f"{ACTOR}.policy_loss.loss_mode"


@pytest.mark.parametrize(("option", "switch"), [(option, s) for s in SWITCHES for option in s.options])
def test_an_option_is_warned_of_only_while_its_switch_is_off(option: str, switch: Any) -> None:
    defaults = {option: 3}
    (warned,) = switched_off(planned({option: 7}, defaults=defaults))
    assert warned.status == "warn" and option in warned.found and switch.setting in warned.found
    assert statuses(switched_off(planned({option: 3}, defaults=defaults))) == ["ok"]
    assert statuses(switched_off(planned({option: 0}, defaults=defaults))) == ["ok"]
    turned_on = {**_TURNED_ON, _LOSS: switch.setting.partition("loss_mode=")[2] or "vanilla"}
    assert statuses(switched_off(planned({**turned_on, option: 7}, defaults=defaults))) == ["ok"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.rollout.dtype", "bfloat16"),
        ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", "bf16"),
        ("engine.mixed_precision.param_dtype", "bf16"),
    ],
)
def test_bfloat16_needs_instructions_of_the_cpu(key: str, value: str) -> None:
    for values, is_here, status in [
        ({"trainer.device": "cpu", key: value}, False, "warn"),
        ({"trainer.device": "cpu", key: value}, True, "ok"),
        ({"trainer.device": "cpu", key: "fp32"}, False, "ok"),
        ({"trainer.device": "cuda", key: value}, False, "ok"),
    ]:
        assert statuses(machine(planned(values, has_bfloat16_here=is_here, num_gpus_here=8))) == [status]


def test_what_this_machine_does_not_have_is_not_tested() -> None:
    values = {f"{ROLLOUT}.name": "vllm", "trainer.device": "cuda", "trainer.n_gpus_per_node": 8}
    assert statuses(machine(planned(values, num_gpus_here=0))) == ["not tested"] * 2
    assert statuses(machine(planned(values, num_gpus_here=8, packages={"vllm": "0.28"}))) == ["ok"]
