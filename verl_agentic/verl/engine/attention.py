"""The attention of the models that verl's FSDP engines load, and whether the package for it is installed.

Other engines (Megatron, VeOmni) and rollout servers, reward models among them, choose their attention themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.features import is_installed

_KEY = "attn_implementation"
_VERLS_DEFAULT = "flash_attention_2"
"""verl 0.9.1, workers/config/model.py."""
_PACKAGES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
_MODELS = {
    "actor_rollout_ref.model": ("actor_rollout_ref.actor.strategy", "actor and reference"),
    "critic.model": ("critic.strategy", "the critic"),
    "model": ("engine.strategy", "the model"),
}
"""Section of a model -> the key of its engine, and its role; the last one is that of SFT."""


def check_attention(config: Any) -> None:
    """Raises ConfigError if a model cannot be loaded on this machine, which has the device of the run."""
    if has_device(config) and (missing := list(missing_attention(config))):
        raise ConfigError("; ".join(missing))


def has_device(config: Any) -> bool:
    """Tells whether this machine has the device of a run, so that its packages are those of the run."""
    import torch

    return OmegaConf.select(config, "trainer.device") == "cpu" or torch.cuda.is_available()


def missing_attention(config: Any) -> Iterator[str]:
    """Yields a message for each model whose attention needs what is not installed here, or what a CPU cannot run."""
    device = OmegaConf.select(config, "trainer.device")
    for section, (engine, role) in _MODELS.items():
        if device not in ("cpu", "cuda") or OmegaConf.select(config, engine) not in ("fsdp", "fsdp2"):
            continue
        if section == "critic.model" and not _has_critic(config):
            continue
        key = f"{section}.override_config.{_KEY}"
        chosen = (OmegaConf.select(config, f"{section}.override_config") or {}).get(_KEY, _VERLS_DEFAULT)
        package = _PACKAGES.get(chosen)
        # transformers takes its kernels from the hub where `kernels` is installed.
        if package and (device == "cpu" or not (is_installed(package) or is_installed("kernels"))):
            reason = "no CPU runs it" if device == "cpu" else f"{package} is not installed"
            advice = f"set ++{key}=sdpa {section}.use_remove_padding=false"
            yield f"{role} cannot load with {key}={chosen}: {reason}; {advice}"


def _has_critic(config: Any) -> bool:
    is_enabled = OmegaConf.select(config, "critic.enable")
    return OmegaConf.select(config, "algorithm.adv_estimator") == "gae" if is_enabled is None else bool(is_enabled)
