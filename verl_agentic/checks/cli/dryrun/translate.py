"""Translation of a configuration to one step on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from verl_agentic.credit.policy_loss import needs_of_loss
from verl_agentic.verl.extensions.preflight.compose import compose

PROMPTS = 2
GROUP_SIZE = 4
MAX_RESPONSE_TOKENS = 1024
_MIN_RESPONSE_TOKENS, _MIN_PROMPT_TOKENS = 512, 1024
_MAX_ROWS = 256
_AGENTIC = "actor_rollout_ref.rollout.custom.agentic"
_ENGINES = ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic")
_DP = ("fsdp", "fsdp2")
_ABSENT = object()

_ONE_STEP: dict[str, Any] = {
    "trainer.total_training_steps": 1,
    "trainer.total_epochs": 1,
    "trainer.critic_warmup": 0,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.val_before_train": False,
    "trainer.val_only": False,
    "trainer.resume_mode": "disable",
    "trainer.rollout_data_dir": None,
    "trainer.validation_data_dir": None,
    "trainer.logger": ["console", "file"],
    "trainer.use_v1": True,
    "global_profiler.tool": None,
    "global_profiler.steps": None,
    "data.val_max_samples": PROMPTS,
    "data.val_batch_size": None,
    # A warm-up begins with a rate of 0, which changes no parameter.
    "actor_rollout_ref.actor.optim.lr_warmup_steps": 0,
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.0,
    "critic.optim.lr_warmup_steps": 0,
    "critic.optim.lr_warmup_steps_ratio": 0.0,
}
# Only if the configuration has the key.
_NO_GPU: dict[str, Any] = {
    "actor_rollout_ref.rollout.data_parallel_size": 1,
    "actor_rollout_ref.rollout.expert_parallel_size": 1,
    "actor_rollout_ref.rollout.pipeline_model_parallel_size": 1,
    "actor_rollout_ref.rollout.engine_kwargs.vllm": {},
    "actor_rollout_ref.rollout.engine_kwargs.sglang": {},
    "actor_rollout_ref.rollout.engine_kwargs.trtllm": {},
    "actor_rollout_ref.rollout.quantization": None,
    "actor_rollout_ref.rollout.layered_summon": False,
    "actor_rollout_ref.rollout.multi_stage_wake_up": False,
    "actor_rollout_ref.rollout.disaggregation.enabled": False,
    "actor_rollout_ref.rollout.prometheus.enable": False,
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True,
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
    "critic.use_dynamic_bsz": True,
    "actor_rollout_ref.model.use_shm": False,
    "actor_rollout_ref.model.use_liger": False,
    "actor_rollout_ref.model.use_fused_kernels": True,
    "actor_rollout_ref.model.fused_kernel_options.impl_backend": "sampled",
    "actor_rollout_ref.model.enable_activation_offload": False,
    "actor_rollout_ref.model.tiled_mlp.enabled": False,
    "actor_rollout_ref.actor.qat.enable": False,
    "critic.model.use_shm": False,
    "critic.model.use_liger": False,
    "critic.model.use_fused_kernels": False,
    "critic.model.enable_activation_offload": False,
    "data.use_shm": False,
}
_NO_GPU |= {f"{engine}.ulysses_sequence_parallel_size": 1 for engine in _ENGINES}
_NO_GPU |= {
    f"{section}.{key}": value
    for section in ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp")
    for key, value in {
        "param_offload": False,
        "optimizer_offload": False,
        "offload_policy": False,
        "fsdp_size": -1,
        "ulysses_sequence_parallel_size": 1,
        "entropy_checkpointing": False,
        "qat.enable": False,
    }.items()
}
_UNTRANSLATED = {
    "reward.reward_model.enable": "a reward model behind verl's own server needs vllm or sglang; serve it elsewhere "
    "and score by a rubric, or set it to false for the dry run",
    "distillation.enabled": "teachers need vllm or sglang; set it to false for the dry run",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value that the dry run sets."""

    key: str
    before: Any
    after: Any
    why: str

    def __str__(self) -> str:
        return f"{self.key}: {_shorten_value(self.before)} -> {_shorten_value(self.after)}"


@dataclass(kw_only=True)
class Translation:
    """A configuration on its way to the CPU."""

    config: DictConfig
    changes: list[Change] = field(default_factory=list)
    untranslated: list[str] = field(default_factory=list)
    """Parts of the configuration that cannot run on a CPU."""

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a resolved value; the default if it is missing, null or cannot be resolved."""
        try:
            value = OmegaConf.select(self.config, key, default=None)
        except Exception:  # an interpolation that cannot be resolved here
            value = None
        if OmegaConf.is_config(value):
            value = OmegaConf.to_container(value, resolve=False)
        return default if value is None else value

    def has(self, key: str) -> bool:
        """Returns whether the configuration has a key, whatever its value."""
        section, _, name = key.rpartition(".")
        parent = OmegaConf.select(self.config, section) if section else self.config
        return isinstance(parent, DictConfig) and name in parent.keys()  # noqa: SIM118 ("in" is false for ???)

    @property
    def has_critic(self) -> bool:
        """Returns whether verl trains a critic: critic.enable, or if it is not set, whether the estimator is GAE."""
        enabled = self.get("critic.enable")
        return bool(enabled) if enabled is not None else self.get("algorithm.adv_estimator") == "gae"

    def set(self, key: str, value: Any, why: str) -> None:
        """Sets a value, and records a change."""
        before = self.get(key, _ABSENT)
        if before is _ABSENT and value is None and self.has(key):
            return
        if before is not _ABSENT and before == value and type(before) is type(value):
            return
        with open_dict(self.config):
            OmegaConf.update(self.config, key, value, merge=False, force_add=True)
        # Without a critic, changes of its section do not matter.
        if self.has_critic or not key.startswith("critic."):
            self.changes.append(Change(key=key, before=None if before is _ABSENT else before, after=value, why=why))


def translate(config: DictConfig, *, out: Path, own_tokenizer: bool) -> Translation:
    """Returns the configuration for one step on a CPU.

    Args:
        config: composed from the user's command line; changed in place.
        out: folder of the dry run.
        own_tokenizer: whether the tiny model has the user's tokenizer.
    """
    translation = Translation(config=config)
    translation.untranslated += [
        f"{key}=true: {why}" for key, why in _UNTRANSLATED.items() if translation.get(key) is True
    ]
    _to_fsdp(translation)
    for key, value in cpu_settings():
        if key != "trainer.logger":
            translation.set(key, value, "a CPU")
    for key, value in _NO_GPU.items():
        if translation.has(key):
            translation.set(key, value, "a CPU")
    _shrink_sizes(translation)
    _shorten_lengths(translation, own_tokenizer=own_tokenizer)
    for key, value in _ONE_STEP.items():
        if translation.has(key) or key.startswith("trainer."):
            translation.set(key, value, "one step")
    translation.set("trainer.default_local_dir", str(out / "checkpoints"), "one step")
    if translation.get(f"{_AGENTIC}.log.dir"):
        translation.set(f"{_AGENTIC}.log.dir", str(out / "run"), "one step")
    is_ours = translation.get("actor_rollout_ref.rollout.agent.default_agent_loop") == "env_agent"
    if is_ours and translation.get(f"{_AGENTIC}.audit") != "off":
        translation.set(
            f"{_AGENTIC}.audit", "warn", "breaches of the audit are reported, and the step continues to its proof"
        )
    return translation


def cpu_settings() -> Iterator[tuple[str, Any]]:
    """Yields key and value of `agentic/cpu`."""
    from verl_agentic import __file__ as package

    for name in ("one_device", "cpu"):
        settings = yaml.safe_load((Path(package).parent / "config" / "agentic" / f"{name}.yaml").read_text())
        settings.pop("defaults")
        yield from leaves(settings)


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted path and the value of every leaf."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _to_fsdp(translation: Translation) -> None:
    """Replaces the sections of other engines (Megatron, VeOmni, ...) by verl's FSDP sections, and keeps common
    options."""
    foreign = [engine for engine in _ENGINES if translation.get(f"{engine}.strategy") not in (None, *_DP)]
    if not foreign:
        return
    fresh = compose(None, "ppo_trainer", ["actor_rollout_ref.rollout.name=agentic"]).config
    for engine in foreign:
        section = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.select(fresh, engine), resolve=False))
        theirs = cast(
            "dict[str, Any]", OmegaConf.to_container(OmegaConf.select(translation.config, engine), resolve=False)
        )
        strategy = translation.get(f"{engine}.strategy")
        _take_common(section, theirs)
        with open_dict(translation.config):
            OmegaConf.update(translation.config, engine, section, merge=False, force_add=True)
        why = f"{strategy} needs GPUs: options that FSDP does not have are left out"
        translation.changes.append(Change(key=f"{engine}.strategy", before=strategy, after="fsdp2", why=why))
        OmegaConf.update(translation.config, f"{engine}.strategy", "fsdp2")
    if translation.has("model_engine"):
        OmegaConf.update(translation.config, "model_engine", "dp", merge=False)


def _take_common(section: dict[str, Any], theirs: Mapping[str, Any]) -> None:
    for name, value in theirs.items():
        # verl's section does not have the plugin's policy_loss.options.
        if name in ("_target_", "strategy") or name not in section:
            if name in ("options", "categorical"):
                section[name] = value
            continue
        if isinstance(value, Mapping) and isinstance(section[name], dict):
            _take_common(section[name], value)
        else:
            section[name] = value


def _shrink_sizes(translation: Translation) -> None:
    why = "one small batch"
    prompts, mini = (
        translation.get("data.train_batch_size", 0),
        translation.get("actor_rollout_ref.actor.ppo_mini_batch_size", 0),
    )
    translation.set("data.train_batch_size", PROMPTS, why)
    translation.set("actor_rollout_ref.actor.ppo_mini_batch_size", PROMPTS if mini >= prompts else 1, why)
    if (translation.get("actor_rollout_ref.rollout.n", 1)) > GROUP_SIZE:
        translation.set("actor_rollout_ref.rollout.n", GROUP_SIZE, why)
    if (
        translation.get(f"{_AGENTIC}.branching.initial", 0)
        >= (size := translation.get("actor_rollout_ref.rollout.n", 1))
        > 1
    ):
        translation.set(f"{_AGENTIC}.branching.initial", size // 2, why)
    if translation.get("data.gen_batch_size") is not None:
        translation.set("data.gen_batch_size", PROMPTS, why)
    if translation.get("data.train_max_samples", -1) < 0 or translation.get("data.train_max_samples") > _MAX_ROWS:
        translation.set("data.train_max_samples", _MAX_ROWS, "reading all rows takes a long time")
    mode = str(translation.get("trainer.v1.trainer_mode", "sync")).removeprefix("agentic_")
    if mode == "separate_async":
        translation.set("trainer.v1.separate_async.parameter_sync_step", 1, why)
        translation.set("actor_rollout_ref.rollout.nnodes", 1, "a CPU")
        translation.set("actor_rollout_ref.rollout.n_gpus_per_node", 1, "a CPU")
        if translation.get("actor_rollout_ref.hybrid_engine") is False:
            translation.set("trainer.v1.separate_async.hybrid_rollout.enable_switch", False, "a CPU")
    elif translation.get("actor_rollout_ref.rollout.nnodes", 0) > 0:
        translation.set("actor_rollout_ref.rollout.nnodes", 0, "a CPU")


def _shorten_lengths(translation: Translation, *, own_tokenizer: bool) -> None:
    prompt, response = translation.get("data.max_prompt_length", 512), translation.get("data.max_response_length", 512)
    tokens = min(response, MAX_RESPONSE_TOKENS)
    why = "short episodes"
    if not own_tokenizer:
        why = "the tiny model's tokenizer needs more tokens for a text"
        prompt, tokens = max(prompt, _MIN_PROMPT_TOKENS), max(tokens, _MIN_RESPONSE_TOKENS)
        translation.set("data.max_prompt_length", prompt, why)
    translation.set("data.max_response_length", tokens, why)
    budget = prompt + tokens
    needs = needs_of_loss(str(translation.get("actor_rollout_ref.actor.policy_loss.loss_mode")))
    rows, unit = (translation.get("actor_rollout_ref.rollout.n", 1), "group") if "group_size_B" in needs else (1, "row")
    for key, fit in (("actor_rollout_ref.actor", rows), ("critic", 1)):
        if translation.has(f"{key}.ppo_max_token_len_per_gpu"):
            translation.set(f"{key}.ppo_max_token_len_per_gpu", fit * budget, f"memory: one {unit} at a time")
    if translation.get("actor_rollout_ref.rollout.max_model_len") is not None:
        translation.set("actor_rollout_ref.rollout.max_model_len", budget, why)


def _shorten_value(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
