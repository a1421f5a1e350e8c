"""Settings of the trainings of `peers.py`: our recipe, and those of the other trainers, derived from it.

What cannot be aligned:

- The learning rate decays with every update there, and with every step here. Both end at the same value.
- TRL shuffles the episodes of a step before it splits them into updates. ms-swift and verl keep groups together.
- Advantages are divided by the deviation of their group plus 1e-4 there, plus 1e-6 here.
- The KL loss of TRL has the gradient of `k3+` times the ratio of the policies. That of ms-swift is `k3`.
- A malformed call ends the episode of TRL; here and in our scheduler for ms-swift the policy gets an error.
- Without vLLM, ms-swift limits the tokens of a turn, the others those of an episode.

With `--model smollm2`: TRL warms up from a rate of 0, so its first update learns nothing. Its sampling is its own, and
its episodes are ours, because its tool calls cannot continue a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.cpu.quickstart.course import Course, load_course
from verl_agentic.verl.extensions.preflight.compose import compose

RECIPE = "quickstart"
_NEVER = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Inputs of one training."""

    start: Path
    """Folder of the warm start."""
    out: Path
    seed: int
    steps: int
    recipe_name: str = RECIPE

    @property
    def course(self) -> Course:
        """The course of the recipe."""
        return load_course(self.recipe_name)

    @property
    def log(self) -> Path:
        """The folder of our log."""
        return self.out / "log"

    @property
    def sft(self) -> Path:
        """The model that all trainings begin with."""
        return self.start / "sft" / "model"

    def overrides(self) -> list[str]:
        """Returns the overrides of our side."""
        return [
            f"actor_rollout_ref.model.path={self.sft}",
            f"data.train_files={self.start / 'data' / 'train.jsonl'}",
            f"data.val_files={self.start / 'data' / 'test.jsonl'}",
            "data.shuffle=false",
            f"data.seed={self.seed}",
            f"actor_rollout_ref.rollout.seed={self.seed}",
            f"trainer.total_training_steps={self.steps}",
            f"trainer.save_freq={_NEVER}",  # the last step is always saved
            "actor_rollout_ref.actor.checkpoint.save_contents=[model,hf_model]",
            "trainer.resume_mode=disable",
            f"trainer.default_local_dir={self.out / 'checkpoints'}",
            f"++agentic.log.dir={self.log}",
        ]

    def recipe(self) -> dict[str, Any]:
        """Returns the configuration of our side, resolved."""
        return compose(self.course.file("grpo").parent, "grpo", self.overrides()).plain


def trl_settings(recipe: Mapping[str, Any], *, steps: int, seed: int) -> dict[str, Any]:
    """Returns the arguments of TRL's `GRPOConfig` that mean what the recipe means."""
    return {
        **_shared(recipe, steps=steps, seed=seed),
        "max_tool_calling_iterations": _limits(recipe)["max_turns"] - 1,
        "use_bias_correction_kl": True,
        "shuffle_dataset": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def swift_settings(recipe: Mapping[str, Any], *, steps: int, seed: int) -> dict[str, Any]:
    """Returns the options of `swift rlhf` that mean what the recipe means."""
    shared = _shared(recipe, steps=steps, seed=seed)
    return {
        **shared,
        "rlhf_type": "grpo",
        "model_type": "qwen3",
        "template": "chatml",
        "tuner_type": "full",
        "torch_dtype": "float32",
        "fp16": False,
        "attn_impl": "sdpa",
        "check_model": False,  # it would ask a hub
        "max_turns": _limits(recipe)["max_turns"],
        "max_length": recipe["data"]["max_prompt_length"],
        "split_dataset_ratio": 0,
        "dataset_shuffle": False,
        "train_dataloader_shuffle": False,
        "dataset_num_proc": 1,
        "dataloader_num_workers": 0,
        "load_from_cache_file": False,
        "use_vllm": False,
        "top_k": 0,
        "top_p": 1.0,
        "warmup_ratio": 0.0,
        "save_steps": shared["max_steps"],
        "save_only_model": True,
        "report_to": "none",
    }


def _shared(recipe: Mapping[str, Any], *, steps: int, seed: int) -> dict[str, Any]:
    """Returns the arguments that both have from the trainer of transformers and from GRPO."""
    data, actor, rollout = recipe["data"], recipe["actor_rollout_ref"]["actor"], recipe["actor_rollout_ref"]["rollout"]
    optim, per_update = actor["optim"], actor["ppo_mini_batch_size"] * rollout["n"]
    updates = data["train_batch_size"] * rollout["n"] // per_update
    per_pass = per_update if actor["use_dynamic_bsz"] else actor["ppo_micro_batch_size_per_gpu"]
    passes = per_update // per_pass
    if passes > 1 and updates > 1:
        raise ValueError(f"several updates of several passes have no loss of this mean, got {updates} and {passes}")
    _demand(actor, loss_agg_mode="token-mean", kl_loss_type="k3+", ppo_epochs=1, entropy_coeff=0)
    _demand(optim, lr_scheduler_type="cosine", optimizer="AdamW", lr_warmup_steps_ratio=0.0)
    _demand(recipe["algorithm"], adv_estimator="grpo", norm_adv_by_std_in_grpo=True, use_kl_in_reward=False)
    return {
        "learning_rate": optim["lr"],
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": optim["min_lr_ratio"]},
        "warmup_steps": max(optim["lr_warmup_steps"], 0) * updates,
        "adam_beta1": optim["betas"][0],
        "adam_beta2": optim["betas"][1],
        "weight_decay": optim["weight_decay"],
        "max_grad_norm": optim["clip_grad"],
        "per_device_train_batch_size": per_pass,
        "steps_per_generation": updates * passes,
        "gradient_accumulation_steps": passes,
        "max_steps": steps * updates,
        "num_generations": rollout["n"],
        "temperature": rollout["temperature"],
        "max_completion_length": data["max_response_length"],
        # The mean over the tokens of a pass, or of all passes of the only update.
        "loss_type": "bnpo" if passes == 1 else "dapo",
        "epsilon": actor["clip_ratio_low"],
        "epsilon_high": actor["clip_ratio_high"],
        "delta": actor["clip_ratio_c"],  # dual clip
        "beta": actor["kl_loss_coef"] if actor["use_kl_loss"] else 0.0,
        "scale_rewards": "group",
        "seed": seed,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "logging_steps": updates,
    }


def _limits(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    return recipe["actor_rollout_ref"]["rollout"]["custom"]["agentic"]["limits"]


def _demand(settings: Mapping[str, Any], **expected: Any) -> None:
    """Raises a `ValueError` for a setting that is not translated."""
    for name, value in expected.items():
        if settings[name] != value:
            raise ValueError(f"{name} must be {value!r} for this comparison, got {settings[name]!r}; translate it")
