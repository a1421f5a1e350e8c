"""Instructions that evolve with the policy, in the trainer: each group gets one, and a model proposes new ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from tensordict.tensorclass import NonTensorStack

from verl_agentic.base.text.tags import last_block
from verl_agentic.episode.loop_settings import INSTRUCTION
from verl_agentic.methods.instructions import InstructionPopulation
from verl_agentic.sampling.prompt_sampler import PromptSampler
from verl_agentic.verl.batches.row_store import unwrap
from verl_agentic.verl.extensions.methods.trainer.model_asker import ModelAsker

_log = logging.getLogger(__name__)


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
        prompts = [_last_text(prompt) for prompt in batch["raw_prompt"]]
        chosen = [self._population.draw(uid, prompt) for uid, prompt in zip(uids, prompts, strict=True)]
        batch[INSTRUCTION] = cast("Any", NonTensorStack)(*chosen)


def _last_text(prompt: Any) -> str:
    return str(list(unwrap(prompt))[-1]["content"])
