"""Language models beside the training, which propose new tasks and new instructions.

They are the settings `task_set.mutator` and `instructions.reflector` of `agentic.curriculum`. Each group gets an
instruction of a population that evolves with the policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
from tensordict.tensorclass import NonTensorStack

from verl_agentic.base.settings import read_settings
from verl_agentic.base.text.tags import last_block
from verl_agentic.base.types import Message
from verl_agentic.data.mutated_rows import mutated_rows, mutation_request
from verl_agentic.data.proposer_env import append_record
from verl_agentic.episode.loop_settings import INSTRUCTION
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.methods.instructions import InstructionPopulation
from verl_agentic.sampling.prompt_sampler import PromptSampler
from verl_agentic.verl.batches.row_store import unwrap

_log = logging.getLogger(__name__)


class ModelAsker:
    """One request at a time, in a thread of its own."""

    def __init__(self, raw_settings: Mapping[str, Any] | None, *, section: str) -> None:
        """Reads the settings of the model; None asks nothing. Raises ConfigError if they are invalid."""
        self._model = None if raw_settings is None else read_settings(ChatModel, dict(raw_settings), section=section)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="asks-a-model")
        self._request: Future[Any] | None = None

    @property
    def is_free(self) -> bool:
        """A request can be made now."""
        return self._model is not None and self._request is None

    def ask(self, text: str) -> None:
        """Sends a request."""
        assert self._model is not None and self._request is None
        self._request = self._threads.submit(asyncio.run, self._model.ask([Message("user", text)]))

    def answer(self) -> str | None:
        """Returns the answer once it has come, else None; failures are logged and give an empty answer."""
        if self._request is None or not self._request.done():
            return None
        request, self._request = self._request, None
        try:
            reply = request.result()
        except Exception:  # a helper of the training never ends it
            _log.exception("a model beside the training could not be asked")
            return ""
        if reply.text is None:
            _log.info("a model beside the training gave no answer, got %s", reply.failure)
        return reply.text or ""


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


def make_reflector(sampler: PromptSampler, dataset: Any, seed: int) -> Reflector | None:
    """Returns the reflector of a curriculum with instructions, or None."""
    return None if sampler.instructions is None else Reflector(sampler.instructions)


class Reflector:
    """Asks a model for new instructions."""

    def __init__(self, population: InstructionPopulation) -> None:
        """Reads the settings of the model. Raises ConfigError if they are invalid."""
        section = "data.curriculum.instructions.reflector"
        self.asker = ModelAsker(population.settings.reflector, section=section)
        self._population = population

    def before_batch(self, step: int) -> None:
        """Takes an answer that has come, and asks again every few steps; never waits."""
        answer = self.asker.answer()
        text = last_block([answer or ""], "instruction")
        if answer and (text is None or not self._population.propose(text)):
            _log.info("no new instruction came of a reflection: %.200r", answer)
        if self.asker.is_free and step > 1 and step % self._population.settings.every == 0:
            self.asker.ask(self._population.reflection())

    def after_batch(self, batch: Any, uids: Sequence[str]) -> None:
        """Writes the instruction of each group into a column that the agent loop reads."""
        prompts = [str(list(unwrap(prompt))[-1]["content"]) for prompt in batch["raw_prompt"]]
        chosen = [self._population.draw(uid, prompt) for uid, prompt in zip(uids, prompts, strict=True)]
        batch[INSTRUCTION] = cast("Any", NonTensorStack)(*chosen)
