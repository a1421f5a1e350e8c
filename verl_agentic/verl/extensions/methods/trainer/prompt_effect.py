"""Measures how much responses depend on prompts: `algorithm.prompt_information`, trainers `agentic_*`.

Every few steps, the first turns of one session per prompt are evaluated under all of these prompts. Text only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

import torch
import transfer_queue as tq

from verl_agentic.methods.prompt_information import PromptInformationSettings, prompt_information
from verl_agentic.verl.batches.row_store import split_key
from verl_agentic.verl.extensions.methods.method_sections import prompt_information as prompt_information_settings
from verl_agentic.verl.extensions.methods.trainer.extra_rows import extra_row, log_probs_of, max_row_tokens
from verl_agentic.verl.trainer.trainer_part import TrainerPart

_FIELDS = ["prompts", "responses", "response_mask"]


class PromptEffect(TrainerPart):
    """Measures prompt information every few steps."""

    def before_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> dict[str, float]:
        """See `measure_prompt_information`."""
        settings = prompt_information_settings(self.config)
        # verl's separate_async has several batches in a step.
        if settings is None or (trainer.global_steps - 1) % settings.every or trainer.local_trigger_step:
            return {}
        return measure_prompt_information(trainer, batch, columns, settings)


def measure_prompt_information(
    trainer: Any, batch: Any, columns: Mapping[str, Any], settings: PromptInformationSettings
) -> dict[str, float]:
    """Returns the metrics `batch/prompt_*`; empty for a batch with fewer than two prompts.

    Args:
        trainer: verl's, with an actor.
        batch: verl's batch; not changed.
        columns: columns stored by agent loops.
    """
    first_turns = _first_turns(batch, columns, settings, max_tokens=max_row_tokens(trainer.config))
    places, prompts, texts = (
        list(first_turns),
        [prompt for prompt, _ in first_turns.values()],
        [text for _, text in first_turns.values()],
    )
    if len(places) < 2:
        return {}
    pairs = [(i, j) for i in range(len(texts)) for j in range(len(prompts))]
    # The workers need equal numbers of rows, so missing ones are duplicated.
    padded = pairs + pairs[:1] * (-len(pairs) % _rows_at_once(trainer))
    rows = [extra_row(prompts[j], texts[i], torch.ones_like(texts[i])) for i, j in padded]
    keys = [f"asked-{number}-{batch.keys[places[i]]}" for number, (i, _) in enumerate(padded)]
    log_probs = log_probs_of(trainer, batch, rows, keys=keys, beside=[places[i] for i, _ in padded])
    sums = torch.stack([row.double().sum() for row in log_probs.unbind()[: len(pairs)]])
    counts = torch.tensor([len(text) for text in texts])
    metrics = prompt_information(sums.view(len(texts), -1), counts)
    return {f"batch/{name}": value for name, value in metrics.items()}


def _first_turns(
    batch: Any, columns: Mapping[str, Any], settings: PromptInformationSettings, *, max_tokens: float
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Returns row -> its prompt and the policy's first turn, of one session of each of some distinct prompts."""
    fetched = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
    prompts, responses, masks = (fetched[name].unbind() for name in _FIELDS)
    used_keys: set[str | tuple[int, ...]] = set()
    turns: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for place in _own_rows(batch.keys, columns):
        uid, prompt = split_key(batch.keys[place])[0], prompts[place]
        prompt_ids = tuple(prompt.tolist())
        length = min(settings.tokens, sum(1 for _ in takewhile(bool, masks[place].tolist())))
        if length and len(prompt) + settings.tokens <= max_tokens and not {uid, prompt_ids} & used_keys:
            used_keys |= {uid, prompt_ids}
            turns[place] = prompt, responses[place][:length]
    return dict(islice(turns.items(), settings.prompts))


def _own_rows(keys: Sequence[str], columns: Mapping[str, Any]) -> list[int]:
    """Returns rows, first rows of sessions first, without those of sub-agents and external sessions."""
    not_own = [columns.get("parts", {}).get("external"), columns.get("is_side_B")]
    is_own = [not any(column is not None and column[place] > 0 for column in not_own) for place in range(len(keys))]
    rows = [place for place, flag in enumerate(is_own) if flag]
    return sorted(rows, key=lambda place: split_key(keys[place])[2])


def _rows_at_once(trainer: Any) -> int:
    """Returns the number that the row count must be a multiple of."""
    rollout = trainer.config.actor_rollout_ref.rollout
    micro = 1 if rollout.log_prob_use_dynamic_bsz else rollout.log_prob_micro_batch_size_per_gpu
    return trainer.actor_rollout_wg.world_size * micro
