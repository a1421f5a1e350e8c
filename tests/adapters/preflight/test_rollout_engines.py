"""Runs on GPUs with verl's own engines pass preflight where no engine is installed, and facts of models are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3MoeConfig

from verl_agentic.base.paths import recipes_dir
from verl_agentic.checks.preflight.planned_run import Model
from verl_agentic.checks.preflight.result import judge
from verl_agentic.data.prepare import make_rows, to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.verl.engine import attention
from verl_agentic.verl.extensions.preflight import plan_run
from verl_agentic.verl.extensions.preflight.first_prompt import Worker
from verl_agentic.verl.extensions.preflight.plan_run import plan

RUN = """
hydra: {searchpath: ["pkg://verl_agentic.config"]}
defaults: [ppo_trainer, agentic/plugin, _self_]
agentic: {env: search_qa, protocol: search_r1, limits: {max_turns: 4}}
algorithm: {adv_estimator: grpo}
data: {train_batch_size: 8, max_prompt_length: 1024, max_response_length: 1024}
actor_rollout_ref:
  model: {use_remove_padding: true}
  actor: {strategy: fsdp2, ppo_mini_batch_size: 8, use_dynamic_bsz: true}
  rollout: {mode: async, n: 4, calculate_log_probs: true, log_prob_use_dynamic_bsz: true}
trainer: {total_training_steps: 2, n_gpus_per_node: 2, logger: [console]}
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_run_with_stop_texts_passes_on_every_engine(
    engine: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    rows = make_rows(load_env_package("search_qa"), split="train", count=16, seed=0, options=None)
    records = to_records(rows, env_id="search_qa", split="train", agent_name="env_agent")
    write_parquet(records[:12], tmp_path / "train.parquet")
    write_parquet(records[12:], tmp_path / "val.parquet")
    (tmp_path / "run.yaml").write_text(RUN)
    overrides = [
        f"actor_rollout_ref.rollout.name={engine}",
        f"actor_rollout_ref.model.path={tiny_model}",
        *(f"data.{split}_files={tmp_path / f'{split}.parquet'}" for split in ("train", "val")),
        f"trainer.default_local_dir={tmp_path / 'out'}",
    ]
    run = plan(tmp_path, "run", overrides)
    assert [result for result in judge(run) if result.status == "fail"] == []
    assert run.prompt is not None and "</search>" in run.prompt.sampling["stop"]
    # SGLang refuses a field that vLLM needs, and needs a tokenizer that verl leaves out.
    assert ("include_stop_str_in_output" in run.prompt.sampling) == (engine == "vllm")
    assert run.get("actor_rollout_ref.rollout.skip_tokenizer_init") is (engine == "vllm")
    assert any("skip_tokenizer_init=False (agentic.protocol)" in choice for choice in run.chosen) == (
        engine == "sglang"
    )


def _facts(config: Any) -> Model:
    class VerlsModel:
        hf_config = config

    return Worker(config=OmegaConf.create({}), model=VerlsModel).facts()


SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_tied_head_counts_as_it_is_sent(is_tied: bool) -> None:
    config = Qwen2Config(**SIZES, tie_word_embeddings=is_tied)
    with torch.device("meta"):
        sent = AutoModelForCausalLM.from_config(config).state_dict()
    assert ("lm_head.weight" in sent) and _facts(config).tied_parameters == (
        sum(tensor.numel() for tensor in sent.values()) if is_tied else None
    )


def test_experts_and_quantised_weights_are_seen() -> None:
    plain = _facts(Qwen2Config(**SIZES))
    assert (plain.has_experts, plain.quantisation) == (False, "")
    assert _facts(Qwen3MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=8)).has_experts
    quantised = Qwen2Config(**SIZES)
    quantised.quantization_config = {"quant_method": "awq", "bits": 4}
    assert _facts(quantised).quantisation == "awq"


ONE_GPU = """
hydra: {{searchpath: ["pkg://verl_agentic.config"]}}
defaults: [ppo_trainer, {groups}, _self_]
agentic: {{env: search_qa, protocol: search_r1, limits: {{max_turns: 4}}}}
algorithm: {{adv_estimator: grpo}}
data: {{train_batch_size: 8, max_prompt_length: 1024, max_response_length: 1000}}
actor_rollout_ref:
  actor: {{ppo_mini_batch_size: 8, strategy: fsdp2, use_dynamic_bsz: true, use_kl_loss: true}}
  rollout: {{n: 4, log_prob_use_dynamic_bsz: true}}
critic: {{enable: true, strategy: fsdp2, ppo_micro_batch_size_per_gpu: 8}}
trainer: {{total_training_steps: 2, logger: [console], n_gpus_per_node: 1}}
"""
ATTENTION = "override_config.attn_implementation"


@pytest.fixture
def one_gpu(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the findings of a run on this machine, with one pretended GPU, torch and no flash-attn."""
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(attention, "has_device", lambda config: True)
    monkeypatch.setattr(plan_run, "_count_gpus", lambda: 1)
    rows = make_rows(load_env_package("search_qa"), split="train", count=16, seed=0, options=None)
    records = to_records(rows, env_id="search_qa", split="train", agent_name="env_agent")
    write_parquet(records[:12], tmp_path / "train.parquet")
    write_parquet(records[12:], tmp_path / "val.parquet")

    def judge_run(groups: str, *overrides: str) -> tuple[Any, list[Any]]:
        (tmp_path / "run.yaml").write_text(ONE_GPU.format(groups=groups))
        files = [f"data.{split}_files={tmp_path / f'{split}.parquet'}" for split in ("train", "val")]
        paths = [f"{section}.path={tiny_model}" for section in ("actor_rollout_ref.model", "critic.model")]
        run = plan(tmp_path, "run", [*files, *paths, f"trainer.default_local_dir={tmp_path / 'out'}", *overrides])
        return run, judge(run)

    return judge_run


@pytest.mark.sample(1)
@pytest.mark.parametrize("group", ["one_gpu", "one_gpu_float32", "one_gpu_vllm"])
def test_the_groups_for_one_gpu_pass_where_flash_attn_is_missing(group: str, one_gpu: Any) -> None:
    run, findings = one_gpu(f"agentic/{group}")
    assert [(one.check, one.found) for one in findings if one.status == "fail"] == []
    untested = {one.check for one in findings if one.status == "not tested"}
    assert untested <= ({"machine", "verl_validation"} if group == "one_gpu_vllm" else set()), findings
    rollout = run.config["actor_rollout_ref"]["rollout"]
    if group == "one_gpu_vllm":
        assert rollout["max_model_len"] == 2024 and rollout["engine_kwargs"]["vllm"]["kv_cache_memory_bytes"] > 2**30


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("section", ["actor_rollout_ref.model", "critic.model"])
def test_a_run_that_leaves_a_model_at_flash_attention_fails_before_it_starts(section: str, one_gpu: Any) -> None:
    _, findings = one_gpu("agentic/one_gpu", f"~{section}.{ATTENTION}")
    assert [one.check for one in findings if one.status == "fail"] == ["plugin"]
    assert any(f"++{section}.{ATTENTION}=sdpa" in one.found for one in findings if one.status == "fail")


@pytest.mark.slow
def test_packages_of_another_machine_are_not_tested(one_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "has_device", lambda config: False)
    monkeypatch.setattr(plan_run, "_count_gpus", lambda: 0)
    _, findings = one_gpu("agentic/one_gpu", f"~critic.model.{ATTENTION}")
    assert not [one for one in findings if one.status == "fail"]
    assert any("flash_attn is not installed" in one.found for one in findings if one.status == "not tested")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("overrides", "failed"),
    [
        ([], []),
        ([f"~model.{ATTENTION}"], ["plugin"]),
        (["+engine.param_ofload=true"], ["unknown_keys"]),
        (["data.train_files=/nowhere.jsonl"], ["files"]),
        (["optim.lr=high"], ["value_types"]),
    ],
)
def test_a_run_of_sft_is_judged_by_what_it_has(
    overrides: list[str], failed: list[str], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(attention, "has_device", lambda config: True)
    monkeypatch.setattr(plan_run, "_count_gpus", lambda: 1)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    values = {
        "model.path": tiny_model,
        "data.train_files": tmp_path / "rows.jsonl",
        "trainer.default_local_dir": tmp_path,
    }
    given = [*(f"{key}={value}" for key, value in values.items()), "+agentic=one_gpu_sft", *overrides]
    findings = judge(plan(recipes_dir() / "quickstart", "sft", given))
    assert sorted({one.check for one in findings if one.status == "fail"}) == failed, findings
    assert not [one for one in findings if one.status == "not tested"]
