"""The parts of methods in a trainer and beside a curriculum: hooks that `trainers` and `prompt_order` call, and helpers
for the columns of a batch.

A method declares its class as `Features.trainer_parts`. No class is named here, so a method is added in its own files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import load_address
from verl_agentic.credit.policy_loss import needs_of_loss
from verl_agentic.credit.trainer_context import AddedRewards
from verl_agentic.verl.features import all_features

_STATES = "trainer_parts.json"


class TrainerPart:
    """One method in a trainer `agentic_*`. Override the hooks that the method needs; the others do nothing."""

    def __init__(self, config: Any) -> None:
        """Reads the configuration."""
        self.config = config

    @property
    def loss(self) -> str:
        """Name of the policy loss."""
        return str(OmegaConf.select(self.config, "actor_rollout_ref.actor.policy_loss.loss_mode"))

    def loss_needs(self, column: str) -> bool:
        """Tells whether the policy loss needs a column."""
        return column in needs_of_loss(self.loss)

    def prepare(self) -> None:
        """Changes the configuration before verl builds the trainer."""

    def after_setup(self, trainer: Any) -> None:
        """Checks the workers."""

    def after_balance(self, trainer: Any, batch: Any) -> None:
        """Reorders the rows of a batch in place, after verl has balanced them."""

    def before_log_probs(self, batch: Any) -> None:
        """Asks for more than log-probs, by keys of `batch.extra_info`."""

    def after_log_probs(self, batch: Any) -> Any:
        """Returns the batch with the columns that `before_log_probs` asked for."""
        return batch

    def before_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> dict[str, float]:
        """Returns metrics of a batch, before verl may remove tokens from its mask.

        Args:
            columns: stored by agent loops with the rows.
        """
        return {}

    def token_rewards(self, data: Any) -> AddedRewards | None:
        """Returns rewards of tokens that are added to the task's rewards; None without any.

        Args:
            data: verl's batch of padded columns.
        """
        return None

    def after_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> Any:
        """Returns the batch with columns for the policy loss."""
        return batch

    def before_update(self, batch: Any) -> None:
        """Passes values to the workers, by keys of `batch.extra_info`."""

    def lr_factor(self, trainer: Any, batch: Any) -> float | None:
        """Returns a factor of the learning rate of a batch, or None."""
        return None

    def state(self) -> dict[str, Any]:
        """Returns what a resumed run needs, as JSON values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a checkpoint."""


def load_parts(config: Any) -> list[TrainerPart]:
    """Returns the parts of all methods for a configuration."""
    addresses = [address for features in all_features() for address in features.trainer_parts]
    return [load_address(address, what="trainer part")(config) for address in addresses]


def save_states(parts: Sequence[TrainerPart], trainer: Any) -> None:
    """Writes the states of parts into the folder of this step's checkpoint; nothing where none has a state."""
    states = {type(part).__name__: state for part in parts if (state := part.state())}
    if states:
        folder = _step_folder(trainer)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _STATES).write_text(json.dumps(states))


def load_states(parts: Sequence[TrainerPart], trainer: Any) -> None:
    """Gives parts their states of the checkpoint that is resumed; a part without one begins anew."""
    options = trainer.config.trainer
    is_named = options.resume_mode == "resume_path"
    path = (Path(options.resume_from_path) if is_named else _step_folder(trainer)) / _STATES
    states = json.loads(path.read_text()) if path.is_file() else {}
    for part in parts:
        if state := states.get(type(part).__name__):
            part.load_state(state)


def _step_folder(trainer: Any) -> Path:
    return Path(trainer.config.trainer.default_local_dir, f"global_step_{trainer.global_steps}")


def store_columns(batch: Any, fields: dict[str, torch.Tensor]) -> Any:
    """Returns the batch with columns that verl ships to its workers."""
    stored = TensorDict(fields, batch_size=len(batch.keys))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=stored)


def read_columns(batch: Any, *names: str) -> Any:
    """Returns stored columns of a batch."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))


def read_outcomes(columns: Mapping[str, Any], *, why: str) -> torch.Tensor:
    """Returns `[B]` raw outcomes. Raises ConfigError if the rewards have none.

    Args:
        why: the beginning of the error.
    """
    parts = columns.get("parts", {})
    if "acc" not in parts:
        raise ConfigError(
            f"{why}, got rewards without acc, only with {sorted(parts)}; play episodes with env_agent, or return acc "
            "from the reward function"
        )
    return parts["acc"]


class CurriculumPart(Protocol):
    """One method beside a curriculum. `Features.curriculum_parts` names the function that makes it."""

    def before_batch(self, step: int) -> None:
        """Acts before the prompts of a step are drawn. Never waits."""
        ...

    def after_batch(self, batch: Any, uids: Sequence[str]) -> None:
        """Adds columns to the prompts of a batch, in place.

        Args:
            uids: group of each prompt.
        """
        ...
