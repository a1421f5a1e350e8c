"""RL on a log of suggestions: `torchrun ... -m verl_agentic.verl.extensions.offline.suggestion_trainer`.

It takes the configuration of `verl.trainer.sft_trainer` and the section `suggestions` (`SuggestionSettings`).
`data.train_files` are JSON lines or parquet, one suggestion each: `prompt_ids`, `response_ids`, `rollout_log_probs` (of
the response, under the model that wrote it) and `verdict`: `accepted`, `rejected` or `hidden`. Train on the log of the
last model, put the new model in its place, and begin a new log.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from verl_agentic.base.errors import DataError
from verl_agentic.methods.losses.suggestions import SuggestionSettings, suggestion_loss, suggestion_reward
from verl_agentic.verl.extensions.offline.pair_trainer import row_column, run
from verl_agentic.verl.extensions.offline.pear_trainer import BehaviourDataset, PearTrainer

_VERDICTS = ("accepted", "rejected", "hidden")


class SuggestionDataset(BehaviourDataset):
    """Suggestions with their rewards, in the order of the files."""

    def __init__(self, files: Any, *, threshold: float, **options: Any) -> None:
        """Reads all suggestions. Raises DataError if a line has another verdict, or is malformed."""
        self._threshold = threshold
        super().__init__(files, **options)

    def read(self, row: Mapping[str, Any], place: str) -> dict[str, Any]:
        if row.get("verdict") not in _VERDICTS:
            raise DataError(f"{place} must have a verdict of {_VERDICTS}, got {row.get('verdict')!r}; fix the log")
        num_tokens = len(row.get("response_ids") or ())
        return {**row, "response_mask": [1] * num_tokens, "turn_ids": [0] * num_tokens}

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Returns the columns of `BehaviourDataset`, and `reward` `[1]`."""
        reward = suggestion_reward(self._rows[index][1]["verdict"], threshold=self._threshold)
        return {**super().__getitem__(index), "reward": torch.tensor([reward])}


def log_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, settings: SuggestionSettings
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a micro-batch's share of the mean loss over the tokens of a batch.

    `train/reward` is the mean reward of a suggestion, and `train/used` the share that the policy could learn from.
    """
    log_probs = model_output["log_probs"]
    loss, num_used, rewards = torch.zeros((), device=log_probs.device), 0.0, row_column(data["reward"]).tolist()
    masks, authors = data["loss_mask"].values(), data["behaviour_log_probs"].values()
    for (start, end), reward in zip(pairwise(log_probs.offsets().tolist()), rewards, strict=True):
        # A token's log-prob is at the position before it.
        is_sampled_T = masks[start + 1 : end].bool()
        suggestion = suggestion_loss(
            log_probs.values()[start : end - 1][is_sampled_T], authors[start + 1 : end][is_sampled_T],
            reward=reward, settings=settings,
        )  # fmt: skip
        loss, num_used = loss + suggestion.loss_N.sum(), num_used + suggestion.is_used
    num_rows = data["global_batch_size"]
    metrics = {"train/reward": sum(rewards) / num_rows, "train/used": num_used / num_rows}
    return loss / float(data["batch_num_tokens"]) * data["dp_size"], metrics


class SuggestionTrainer(PearTrainer):
    """verl's SFT trainer on suggestions with the log-probs of their author."""

    settings_type = SuggestionSettings
    loss = staticmethod(log_loss)

    def read_rows(self, files: list[str], **options: Any) -> BehaviourDataset:
        return SuggestionDataset(files, threshold=self.settings.threshold, **options)


if __name__ == "__main__":
    run(SuggestionTrainer)
