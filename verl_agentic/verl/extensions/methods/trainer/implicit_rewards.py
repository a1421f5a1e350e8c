"""Implicit token rewards (PRIME) in RL: `algorithm.implicit_reward`, for trainers `agentic_*`.

verl's reference holds the reward model phi, trained by `verl.extensions.offline.outcome_trainer`. Estimators get the
rewards `beta (log pi_phi - log pi_old)` on sampled tokens in addition to the task's. pi_old is the policy before the
update (`old_log_probs`; the authors' `ref_type: policy`).

Paper: https://arxiv.org/abs/2502.01456. Deviations: phi is not updated during training, so rewards fall as the policy
diverges from phi, and become less accurate. Advantages are estimated for the sum of token rewards and outcomes, not
separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from omegaconf import OmegaConf, open_dict

from verl_agentic.base.errors import ConfigError, PluginError
from verl_agentic.base.settings import read_settings
from verl_agentic.methods.losses.implicit_reward import ImplicitRewardSettings, TokenRewards, implicit_rewards
from verl_agentic.verl.extensions.methods.trainer.added_rewards import check_readers
from verl_agentic.verl.sections import plain_section
from verl_agentic.verl.trainer.trainer_part import TrainerPart, read_columns, store_columns

SECTION = "algorithm.implicit_reward"
REFERENCE_PATH = "reference_path"
"""Key of `actor_rollout_ref` that `verl.extensions.methods.engine.reference_model` reads in the workers."""


class ImplicitRewards(TrainerPart):
    """Adds the rewards of tokens, with the reward model as verl's reference."""

    def prepare(self) -> None:
        """See `put_reward_model_in_place_of_reference`."""
        put_reward_model_in_place_of_reference(self.config)

    def after_setup(self, trainer: Any) -> None:
        """See `check_reward_model_is_loaded`."""
        if (settings := implicit_reward_settings(self.config)) is not None:
            check_reward_model_is_loaded(trainer.ref_policy_wg, settings.model_path)

    def token_rewards(self, data: Any) -> TokenRewards | None:
        """Returns the implicit rewards of a batch."""
        if (settings := implicit_reward_settings(self.config)) is None:
            return None
        log_probs = data.batch["ref_log_prob"], data.batch["old_log_probs"]
        rewards_BT = implicit_rewards(*log_probs, data.batch["response_mask"].bool(), beta=settings.beta)
        return TokenRewards(rewards_BT=rewards_BT, outcome_coef=settings.outcome_coef)

    def after_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> Any:
        """Returns the batch with missing reference log-probs replaced by the policy's.

        These rows have no advantage, but verl still adds its KL term times 0, which is NaN for NaN.
        """
        if implicit_reward_settings(self.config) is None:
            return batch
        stored = read_columns(batch, "ref_log_prob", "old_log_probs")
        reference, old = (cast("Any", stored[name]) for name in ("ref_log_prob", "old_log_probs"))
        if bool(reference.values().isfinite().all()):
            return batch
        values = torch.where(reference.values().isfinite(), reference.values(), old.values())
        return store_columns(
            batch, {"ref_log_prob": torch.nested.nested_tensor_from_jagged(values, reference.offsets())}
        )


def implicit_reward_settings(config: Any) -> ImplicitRewardSettings | None:
    """Returns the settings of the section, or None. Raises ConfigError if the section is invalid."""
    section = plain_section(config, SECTION)
    return None if section is None else read_settings(ImplicitRewardSettings, section, section=SECTION)


def check_implicit_reward(config: Any) -> ImplicitRewardSettings | None:
    """Returns checked settings, or None. Raises ConfigError if the section is invalid, or a requirement is missing."""
    settings = implicit_reward_settings(config)
    if settings is not None:
        _check_reference(config)
        check_readers(config, section=SECTION)
    return settings


def put_reward_model_in_place_of_reference(config: Any) -> None:
    """Makes verl's reference load the reward model, if configured. Raises ConfigError as `check_implicit_reward`."""
    settings = check_implicit_reward(config)
    if settings is None:
        return
    with open_dict(config.actor_rollout_ref):
        config.actor_rollout_ref[REFERENCE_PATH] = settings.model_path


def check_reward_model_is_loaded(workers: Any, path: str) -> None:
    """Raises PluginError if a worker of verl's reference has another model, because its process lacks the plugin."""
    advice = "install verl-agentic on every node, and see what `verl-agentic doctor` says there"
    try:
        loaded = workers.loaded_reference_path()
    except AttributeError as cause:  # Ray raises the worker's own error as one
        raise PluginError(
            f"a worker of the reference has not loaded the adapter reference_model, got {cause}; {advice}"
        ) from cause
    if others := [loaded_path for loaded_path in loaded if loaded_path != path]:
        raise PluginError(
            f"{len(others)} workers have another reference than the model of {SECTION} ({path}), got {others[0]!r}; "
            f"{advice}"
        )


def _check_reference(config: Any) -> None:
    actor, model = config.actor_rollout_ref.actor, config.actor_rollout_ref.get("model") or {}
    options = OmegaConf.select(actor, "policy_loss.options") or {}
    if not actor.get("use_kl_loss"):
        raise ConfigError(
            f"{SECTION} puts its model in the place of verl's reference, and there is none, got "
            "actor_rollout_ref.actor.use_kl_loss=false; set it to true, and kl_loss_coef=0"
        )
    pulls = {
        "actor_rollout_ref.actor.kl_loss_coef": actor.get("kl_loss_coef"),
        "actor_rollout_ref.actor.policy_loss.options.kl": options.get("kl"),
        "actor_rollout_ref.actor.policy_loss.options.kl_coef": options.get("kl_coef"),
        "algorithm.use_kl_in_reward": config.algorithm.get("use_kl_in_reward"),
    }
    for key, value in pulls.items():
        if value and value != "none":
            raise ConfigError(
                f"verl's reference is the model of {SECTION}, to which a KL penalty would pull the policy, got "
                f"{key}={value}; unset it (kl_loss_coef: set it to 0)"
            )
    has_rank = (model.get("lora") or {}).get("rank") or model.get("lora_rank")
    if has_rank or model.get("lora_adapter_path") is not None:
        raise ConfigError(
            f"with LoRA verl's reference is the policy without its adapters, which leaves no place for the model of "
            f"{SECTION}, got actor_rollout_ref.model.lora_rank={has_rank}, "
            f"lora_adapter_path={model.get('lora_adapter_path')}; unset them"
        )
