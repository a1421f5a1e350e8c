"""Patches verl: the reference can have its own model, `actor_rollout_ref.reference_path`, set by our trainers.

Wraps `__init__` of `ActorRolloutRefWorker`; adds its method `loaded_reference_path`.

verl 0.9.1 builds the reference from `actor_rollout_ref.model`, ignoring the section `ref`
(`ActorRolloutRefWorker.init_model`). Everything except the path is the policy's, including the tokenizer.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import OmegaConf
from safetensors import safe_open
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.model import get_hf_auto_model_class
from verl.workers.config import MtpConfig
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.patching import add, wrap

# Written by `implicit_reward`, which no other adapter than the trainers imports.
_PATH = "reference_path"


@wrap(ActorRolloutRefWorker, "__init__")
def initialize_with_reference(initialize: Any, self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
    """Makes the worker build the reference from its own path, if one is given."""
    initialize(self, config, *args, **kwargs)
    path = config.get(_PATH)
    if path is None:
        return
    worker_cls = self.ref_worker_cls

    def build(*, config: Any) -> Any:
        reference = build_reference(worker_cls, self.config.model, path, config=config)
        self.built_reference_path = path
        return reference

    self.ref_worker_cls = build


@register(dispatch_mode=Dispatch.ONE_TO_ALL)  # pyright: ignore[reportAttributeAccessIssue]  # set at run time
def loaded_reference_path(self: Any) -> str | None:
    """Returns, for every worker, the path of its reference; None for verl's own."""
    return getattr(self, "built_reference_path", None)


def build_reference(worker_cls: Callable[..., Any], section: Any, path: str, *, config: Any) -> Any:
    """Returns a worker for the model. Raises ConfigError if its vocabulary is not the policy's, or it lacks weights."""
    tokenizer_path = section.get("tokenizer_path") or section.path
    changes = {"path": path, "hf_config_path": None, "tokenizer_path": tokenizer_path}
    model: Any = omega_conf_to_dataclass(cast("Any", OmegaConf.merge(section, changes)))
    model.mtp = MtpConfig(enable=False)
    ours, theirs = (_vocab_size(model_config.hf_config) for model_config in (config.model_config, model))
    if ours != theirs:
        raise ConfigError(
            f"the reward model must have the vocabulary of the policy, got {theirs} tokens in {path!r} for {ours}; "
            "start phi from a model with the same vocab_size"
        )
    _check_weights(model, path)
    return worker_cls(config=dataclasses.replace(config, model_config=model))


def _check_weights(model: Any, path: str) -> None:
    """Rejects files that lack weights, which transformers would initialise randomly with a warning only."""
    stored = _stored_names(Path(model.local_path))
    if stored is None:
        return
    auto: Any = get_hf_auto_model_class(model.hf_config)
    more = {"trust_remote_code": model.trust_remote_code, "attn_implementation": "eager"}
    with torch.device("meta"):
        empty = auto.from_config(copy.deepcopy(model.hf_config), **more)
    names: dict[int, set[str]] = {}  # of every weight; tied ones have several
    for name, weight in empty.state_dict(keep_vars=True).items():
        names.setdefault(id(weight), set()).add(name)
    if all(stored & aliases for aliases in names.values()):
        return
    # transformers translates weight names of other versions. So this asks transformers, which reads all weights.
    _, loading = auto.from_pretrained(
        model.local_path, config=copy.deepcopy(model.hf_config), device_map="meta", output_loading_info=True, **more
    )
    if missing := sorted(loading["missing_keys"]):
        raise ConfigError(
            f"the files of the reward model lack weights, got {path!r} without {missing[0]} and {len(missing) - 1} "
            "others; save the whole model (hf_model), or merge its LoRA adapters with verl.model_merger"
        )


def _stored_names(folder: Path) -> set[str] | None:
    """Returns the names of the weights in a folder, or None without safetensors."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        return set(json.loads(index.read_text())["weight_map"])
    if not single.is_file():
        return None
    with safe_open(single, framework="pt") as weights:
        return set(weights.keys())


def _vocab_size(hf_config: Any) -> int:
    return hf_config.get_text_config().vocab_size


add(ActorRolloutRefWorker, "loaded_reference_path", loaded_reference_path)
