"""verl's reference with a model of its own: `actor_rollout_ref.reference_path`, which our trainers write.

verl 0.9.1 builds the reference of `actor_rollout_ref.model`, whatever the section `ref` says
(`ActorRolloutRefWorker.init_model`). Everything but the path is the policy's, the tokenizer included.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import MtpConfig
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_agentic.errors import ConfigError

# Written by `implicit_reward`, which no other adapter than the trainers imports.
_PATH = "reference_path"


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        original(self, config, *args, **kwargs)
        path = config.get(_PATH)
        if path is not None:
            self.ref_worker_cls = functools.partial(build_reference, self.ref_worker_cls, config.model, path)

    return init


def build_reference(worker_cls: Callable[..., Any], section: Any, path: str, *, config: Any) -> Any:
    """Returns the reference's worker with the model of a path.

    Raises:
        ConfigError: the model has another vocabulary than the policy.
    """
    tokenizer_path = section.get("tokenizer_path") or section.path
    changes = {"path": path, "hf_config_path": None, "tokenizer_path": tokenizer_path}
    model: Any = omega_conf_to_dataclass(cast("Any", OmegaConf.merge(section, changes)))
    model.mtp = MtpConfig(enable=False)
    ours, theirs = (_vocab_size(one.hf_config) for one in (config.model_config, model))
    if ours != theirs:
        raise ConfigError(
            f"the reward model must have the vocabulary of the policy, got {theirs} tokens in {path!r} for {ours}; "
            "train one of the policy's family"
        )
    return worker_cls(config=dataclasses.replace(config, model_config=model))


def _vocab_size(hf_config: Any) -> int:
    return hf_config.get_text_config().vocab_size


_worker = cast("Any", ActorRolloutRefWorker)
_worker.__init__ = _init(_worker.__init__)
