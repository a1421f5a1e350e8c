"""DPO on trajectories, with verl's SFT trainer: `torchrun ... -m verl_agentic.adapters.offline.dpo_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `dpo` (`DpoSettings`). `data.train_files` are
JSON lines of pairs (`data.datasets.preference_pairs`); for the rest, see `adapters.offline.pair_trainer`. Merge LoRA
checkpoints before loading (`python -m verl.model_merger`), because weights in `hf_model` have PEFT's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from verl_agentic.adapters.offline.pair_trainer import (
    REFERENCE,
    EncodedRow,
    ReferenceSettings,
    ReferenceTrainer,
    row_column,
    row_log_probs,
    run,
)
from verl_agentic.algorithms.losses.dpo import dpo_loss
from verl_agentic.data.datasets.preference_pairs import SIDES, encode_pair
from verl_agentic.settings import setting


@dataclass(frozen=True, kw_only=True)
class DpoSettings(ReferenceSettings):
    """The section `dpo`."""

    section: ClassVar[str] = "dpo"

    beta: float = setting(0.1, above=0)
    """Strength of the pull towards the reference."""


async def encode(pair: Mapping[str, Any], *, codec: Any, tokenizer: Any) -> list[EncodedRow]:
    """Returns the rows of a pair, chosen and rejected. Raises DataError if the pair is malformed."""
    sides = await encode_pair(pair, codec=codec, tokenizer=tokenizer)
    return [EncodedRow(trajectory=sides[side], labels={}) for side in SIDES]


def pair_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, beta: float
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a micro-batch's share of the mean loss over pairs. Raises DataError if micro-batches split a pair."""
    log_probs_B = row_log_probs(model_output["log_probs"], data["loss_mask"])
    reference_B = row_column(data[REFERENCE])
    preference = dpo_loss(
        log_probs_B[0::2],
        log_probs_B[1::2],
        ref_chosen_P=reference_B[0::2],
        ref_rejected_P=reference_B[1::2],
        beta=beta,
    )
    num_pairs = data["global_batch_size"]
    metrics = {
        "train/margin": float(preference.margin_P.sum()) / num_pairs,
        "train/accuracy": float((preference.margin_P > 0).sum()) / num_pairs,
    }
    return preference.loss_P.sum() / num_pairs * data["dp_size"], metrics


class DpoTrainer(ReferenceTrainer):
    """verl's SFT trainer on pairs."""

    settings_type = DpoSettings
    rows_per_item = len(SIDES)
    encode = staticmethod(encode)
    loss = staticmethod(pair_loss)


if __name__ == "__main__":
    run(DpoTrainer)
