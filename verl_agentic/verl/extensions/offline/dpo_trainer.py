"""DPO on trajectories, with verl's SFT trainer: `torchrun ... -m verl_agentic.verl.extensions.offline.dpo_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `dpo` (`DpoSettings`). `data.train_files` are
JSON lines of pairs (`data.datasets.preference_pairs`); for the rest, see `verl.extensions.offline.pair_trainer`. Merge
LoRA checkpoints before loading (`python -m verl.model_merger`), because weights in `hf_model` have PEFT's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from verl_agentic.base.settings import setting
from verl_agentic.data.datasets.preference_pairs import SIDES, encode_pair
from verl_agentic.methods.losses.dpo import dpo_loss
from verl_agentic.verl.extensions.offline.pair_trainer import (
    REFERENCE,
    EncodedRow,
    ReferenceSettings,
    ReferenceTrainer,
    row_column,
    row_log_probs,
    run,
)


class DpoSettings(ReferenceSettings):
    """The section `dpo`."""

    section: ClassVar[str] = "dpo"

    beta: float = setting(0.1, above=0)
    """Strength of the pull towards the reference."""
    chosen_weight: float = setting(0.0, min=0)
    """Weight of the negative log-prob of a chosen trajectory, divided by its trained tokens; 1 in
    https://arxiv.org/abs/2404.19733 (eq. 1). Without it, DPO may lower the log-probs of both sides."""


async def encode(pair: Mapping[str, Any], *, codec: Any, tokenizer: Any) -> list[EncodedRow]:
    """Returns the rows of a pair, chosen and rejected. Raises DataError if the pair is malformed."""
    sides = await encode_pair(pair, codec=codec, tokenizer=tokenizer)
    return [EncodedRow(trajectory=sides[side], labels={}) for side in SIDES]


def pair_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, settings: DpoSettings
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a micro-batch's share of the mean loss over pairs. Raises DataError if micro-batches split a pair.

    `train/chosen` and `train/rejected` are the mean log-ratios of the two sides to the reference. Where `train/chosen`
    falls below 0, the model writes even the chosen trajectories less often than before.
    """
    log_probs_B = row_log_probs(model_output["log_probs"], data["loss_mask"])
    reference_B = row_column(data[REFERENCE])
    preference = dpo_loss(
        log_probs_B[0::2],
        log_probs_B[1::2],
        ref_chosen_P=reference_B[0::2],
        ref_rejected_P=reference_B[1::2],
        beta=settings.beta,
    )
    loss_P = preference.loss_P
    if settings.chosen_weight:
        counts_P = torch.stack([mask.sum() for mask in data["loss_mask"].unbind()[0::2]])
        loss_P = loss_P - settings.chosen_weight * log_probs_B[0::2] / counts_P
    num_pairs = data["global_batch_size"]
    ratios_B = (log_probs_B - reference_B).detach()
    metrics = {
        "train/margin": float(preference.margin_P.sum()) / num_pairs,
        "train/accuracy": float((preference.margin_P > 0).sum()) / num_pairs,
        "train/chosen": float(ratios_B[0::2].sum()) / num_pairs,
        "train/rejected": float(ratios_B[1::2].sum()) / num_pairs,
    }
    return loss_P.sum() / num_pairs * data["dp_size"], metrics


class DpoTrainer(ReferenceTrainer):
    """verl's SFT trainer on pairs."""

    settings_type = DpoSettings
    rows_per_item = len(SIDES)
    encode = staticmethod(encode)
    loss = staticmethod(pair_loss)


if __name__ == "__main__":
    run(DpoTrainer)
