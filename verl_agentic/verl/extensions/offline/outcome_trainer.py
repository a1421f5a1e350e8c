"""Trains implicit reward models (PRIME): `torchrun ... -m verl_agentic.verl.extensions.offline.outcome_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `implicit_reward` (`OutcomeSettings`).
`data.train_files` are JSON lines of trajectories with their outcome (`data.datasets.outcome_rows`); for the rest, see
`verl.extensions.offline.pair_trainer`. LoRA is rejected. `algorithm.implicit_reward` uses the model in RL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import setting
from verl_agentic.data.datasets.outcome_rows import encode_outcome_row
from verl_agentic.methods.losses.implicit_reward import outcome_loss
from verl_agentic.verl.extensions.offline.pair_trainer import (
    REFERENCE,
    EncodedRow,
    ReferenceSettings,
    ReferenceTrainer,
    row_column,
    row_log_probs,
    run,
)

_OUTCOME = "outcome"


class OutcomeSettings(ReferenceSettings):
    """The section `implicit_reward`."""

    section: ClassVar[str] = "implicit_reward"

    beta: float = setting(0.05, above=0)
    """Scale of the token rewards; the default is the paper's."""


async def encode(row: Mapping[str, Any], *, codec: Any, tokenizer: Any) -> list[EncodedRow]:
    """Returns the one row of an item, labelled with its outcome. Raises DataError if it is malformed."""
    trajectory, outcome = await encode_outcome_row(row, codec=codec, tokenizer=tokenizer)
    return [EncodedRow(trajectory=trajectory, labels={_OUTCOME: outcome})]


def row_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, settings: OutcomeSettings
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a micro-batch's share of the mean loss over all rows of a batch.

    `train/accuracy` is the share of rows whose implicit rewards sum to above 0 for an outcome above 1/2, or to below 0
    for one below. Rows with outcome 1/2 never count as right, and neither does any row in the first step, where phi
    equals the reference.
    """
    log_probs_B = row_log_probs(model_output["log_probs"], data["loss_mask"])
    outcome_B = row_column(data[_OUTCOME])
    loss_terms = outcome_loss(log_probs_B, outcome_B, ref_log_prob_B=row_column(data[REFERENCE]), beta=settings.beta)
    num_rows = data["global_batch_size"]
    is_right_B = loss_terms.return_B * (outcome_B - 0.5) > 0
    return loss_terms.loss_B.sum() / num_rows * data["dp_size"], {"train/accuracy": float(is_right_B.sum()) / num_rows}


class OutcomeTrainer(ReferenceTrainer):
    """verl's SFT trainer on trajectories with their outcome."""

    settings_type = OutcomeSettings
    rows_per_item = 1
    encode = staticmethod(encode)
    loss = staticmethod(row_loss)

    def _build_config(self) -> None:
        check_no_lora(self.config.model)
        super()._build_config()


def check_no_lora(model: Any) -> None:
    """Raises ConfigError for LoRA.

    verl saves `hf_model` with PEFT's names, so a reward model would load with random weights.
    """
    rank = (model.get("lora") or {}).get("rank") or model.get("lora_rank")
    if rank or model.get("lora_adapter_path") is not None:
        raise ConfigError(
            f"a reward model is trained whole, got model.lora_rank={rank}, lora_adapter_path="
            f"{model.get('lora_adapter_path')}; unset them"
        )


if __name__ == "__main__":
    run(OutcomeTrainer)
