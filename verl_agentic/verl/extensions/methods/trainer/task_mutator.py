"""Asks a model for new tasks like those that the policy fails: `agentic.curriculum.task_set.mutator`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.data.mutated_rows import mutated_rows, mutation_request
from verl_agentic.data.proposer_env import append_record
from verl_agentic.sampling.prompt_sampler import PromptSampler
from verl_agentic.verl.extensions.methods.trainer.model_asker import ModelAsker

_log = logging.getLogger(__name__)


def make_mutator(sampler: PromptSampler, dataset: Any, seed: int) -> Mutator | None:
    """Returns the mutator of a task set, or None without one."""
    return None if sampler.settings.task_set is None else Mutator(sampler, dataset, seed=seed)


class Mutator:
    """Asks a model for new tasks like a failed one, and appends them to the file of proposals."""

    def __init__(self, sampler: PromptSampler, dataset: Any, *, seed: int) -> None:
        """Reads the settings of the model. Raises ConfigError if they are invalid."""
        assert sampler.settings.task_set is not None
        self._settings = sampler.settings.task_set
        self.asker = ModelAsker(self._settings.mutator, section="data.curriculum.task_set.mutator")
        self._sampler, self._dataset, self._rng = sampler, dataset, np.random.default_rng(seed)
        self._failed: dict[str, Any] = {}

    def before_batch(self, step: int) -> None:
        """Takes an answer that has come, and asks again every few steps; never waits."""
        count = self._settings.mutations
        if (answer := self.asker.answer()) is not None:
            new = mutated_rows(self._failed, answer, count=count)
            for row in new:
                append_record(Path(self._settings.proposals), row)
            if not new:
                _log.info("no new task came of a failed one: %.200r", answer)
        failures_N = self._sampler.rates.failures_N
        if self.asker.is_free and step > 1 and step % self._settings.every == 0 and failures_N.any():
            prompt = self._rng.choice(len(failures_N), p=failures_N / failures_N.sum())
            self._failed = self._dataset.row(int(prompt))
            self.asker.ask(mutation_request(self._failed, count=count))

    def after_batch(self, batch: Any, uids: Sequence[str]) -> None:
        """Leaves the prompts as they are."""
