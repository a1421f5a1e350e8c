"""Preflight has nothing against what verl's own example scripts configure: features of verl 0.9 on GSM8K-like rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("verl")

from verl_agentic.checks.preflight.result import judge
from verl_agentic.data.prepare import write_parquet
from verl_agentic.verl.extensions.preflight.plan_run import plan

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "ref"))
MODEL, TEACHERS = "actor_rollout_ref.model", "distillation.teacher_models"
LOSS, CORRECTION = f"{ACTOR}.policy_loss.loss_mode", "algorithm.rollout_correction"
DYNAMIC = [
    f"{ACTOR}.use_dynamic_bsz=True",
    f"{ACTOR}.ppo_max_token_len_per_gpu=4096",
    f"{ROLLOUT}.log_prob_use_dynamic_bsz=True",
    f"{REF}.log_prob_use_dynamic_bsz=True",
]
FIXED = [
    f"{ACTOR}.use_dynamic_bsz=False",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=4",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
    f"{REF}.log_prob_micro_batch_size_per_gpu=8",
]
KL = [f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.001", f"{ACTOR}.kl_loss_type=low_var_kl"]
GRPO = ["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4", *DYNAMIC]
LORA = [*GRPO, f"{MODEL}.lora_rank=32", f"{MODEL}.lora_alpha=32", f"{MODEL}.target_modules=all-linear"]
DISTILLED = [
    "algorithm.adv_estimator=grpo",
    f"{ROLLOUT}.n=1",
    *DYNAMIC,
    "distillation.enabled=True",
    "distillation.nnodes=1",
    "distillation.distillation_loss.loss_mode=k1",
    "distillation.distillation_loss.use_task_rewards=False",
    "distillation.distillation_loss.use_policy_gradient=True",
]


def teacher(name: str, key: str, path: str) -> list[str]:
    place = f"+{TEACHERS}.{name}"
    return [
        f"{place}.key={key}",
        f"{place}.model_path={path}",
        f"{place}.num_replicas=2",
        f"{place}.inference.name=vllm",
        f"{place}.inference.tensor_model_parallel_size=2",
        f"{place}.inference.gpu_memory_utilization=0.3",
    ]


EXAMPLES: dict[str, list[str]] = {
    "grpo_with_kl": [*GRPO, *KL, f"{ACTOR}.fsdp_config.param_offload=True", f"{ACTOR}.entropy_coeff=0"],
    "grpo_fixed_micro_batches": ["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4", *FIXED, *KL],
    "gspo": [*GRPO, f"{LOSS}=gspo", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean", f"{ACTOR}.clip_ratio_low=3e-4"],
    "cispo": [*GRPO, f"{LOSS}=cispo", f"{ACTOR}.clip_ratio_high=0.2"],
    "geo_mean": [*GRPO, f"{LOSS}=geo_mean"],
    "gpg": ["algorithm.adv_estimator=gpg", f"{LOSS}=gpg", f"{ROLLOUT}.n=4", *DYNAMIC],
    "sapo": [*GRPO, f"{LOSS}=sapo", f"{ACTOR}.tau_pos=1.0", f"{ACTOR}.tau_neg=1.05"],
    "rloo_kl_in_reward": [
        "algorithm.adv_estimator=rloo",
        "algorithm.use_kl_in_reward=True",
        "algorithm.kl_penalty=kl",
        "algorithm.kl_ctrl.kl_coef=0.001",
        f"{ROLLOUT}.n=4",
        *DYNAMIC,
    ],
    "reinforce_plus_plus": ["algorithm.adv_estimator=reinforce_plus_plus", f"{ROLLOUT}.n=4", *DYNAMIC],
    "ppo_with_a_critic": [
        "algorithm.adv_estimator=gae",
        *DYNAMIC,
        "critic.use_dynamic_bsz=True",
        "critic.ppo_max_token_len_per_gpu=8192",
        "critic.optim.lr=1e-5",
        f"critic.model.path=${{{MODEL}.path}}",
    ],
    "lora": LORA,
    "lora_merged": [*LORA, f"{MODEL}.lora.merge=True"],
    "distillation": [
        *DISTILLED,
        "distillation.n_gpus_per_node=4",
        f"{TEACHERS}.teacher_model.model_path=some/teacher",
        f"{TEACHERS}.teacher_model.inference.tensor_model_parallel_size=4",
    ],
    "distillation_by_two_teachers": [
        *DISTILLED,
        "distillation.n_gpus_per_node=8",
        *teacher("gsm8k", "openai/gsm8k", "some/teacher"),
        *teacher("geometry", "other/geometry", "another/teacher"),
    ],
    "rollout_correction": [
        *GRPO,
        f"{ROLLOUT}.calculate_log_probs=True",
        f"{CORRECTION}.rollout_is=token",
        f"{CORRECTION}.rollout_is_threshold=2.0",
        f"{CORRECTION}.rollout_rs=token_k1",
        f"{CORRECTION}.rollout_rs_threshold='0.6_1.6'",
    ],
    "dynamic_sampling": [*GRPO, "algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward"],
    "knobs_without_effect": [*GRPO, "trainer.balance_batch=False", f"{ACTOR}.use_prefix_grouper=True"],
    "sequence_parallel": [*GRPO, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2", f"{ACTOR}.strategy=fsdp2"],
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gsm8k")
    for split, count in (("train", 64), ("test", 8)):
        made = [
            {
                "data_source": "openai/gsm8k",
                "prompt": [{"role": "user", "content": f"{split}: Ann has {i} pens and gets {i + 1}. How many?"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(2 * i + 1)},
                "extra_info": {"split": split, "index": i},
            }
            for i in range(count)
        ]
        write_parquet(made, folder / f"{split}.parquet")
    return folder


@pytest.mark.sample(1, slow=5)
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_verls_examples_configure_does_not_fail(
    name: str, rows: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    overrides = [
        f"data.train_files={rows / 'train.parquet'}",
        f"data.val_files={rows / 'test.parquet'}",
        "data.train_batch_size=32",
        "data.max_prompt_length=256",
        "data.max_response_length=512",
        "data.truncation=error",
        "data.filter_overlong_prompts=True",
        f"{MODEL}.path={tiny_model}",
        f"{MODEL}.use_remove_padding=True",
        f"{MODEL}.enable_gradient_checkpointing=True",
        f"{ACTOR}.optim.lr=1e-6",
        f"{ACTOR}.ppo_mini_batch_size=16",
        f"{ROLLOUT}.name=vllm",
        f"{ROLLOUT}.gpu_memory_utilization=0.6",
        "trainer.n_gpus_per_node=8",
        "trainer.logger=[console]",
        "trainer.test_freq=5",
        *EXAMPLES[name],
    ]
    results = judge(plan(None, None, overrides))
    assert [(r.check, r.found) for r in results if r.status == "fail"] == []
    warned = [r.found for r in results if r.status == "warn"]
    if name == "lora" and importlib.util.find_spec("vllm") is None:
        assert "verl_validation" in {r.check for r in results if r.status == "not tested"}
    if name == "knobs_without_effect":
        assert sum("has no effect" in one for one in warned) == 2
