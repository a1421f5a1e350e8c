"""Instructions that evolve with the policy, in the trainer: each group gets one, and a model proposes new ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

from tensordict.tensorclass import NonTensorStack

from verl_agentic.agent_loops.loop_settings import INSTRUCTION
from verl_agentic.rewards.models.chat_model import ChatModel
from verl_agentic.rewards.text.tags import last_block
from verl_agentic.sampling.prompts.instructions import InstructionPopulation
from verl_agentic.settings import read_settings
from verl_agentic.types import Message

_log = logging.getLogger(__name__)


class Reflector:
    """Asks a model for new instructions, beside the training."""

    def __init__(self, population: InstructionPopulation) -> None:
        """Reads the settings of the model. Raises ConfigError if they are invalid."""
        written = population.settings.reflector
        section = "data.curriculum.instructions.reflector"
        self._model = None if written is None else read_settings(ChatModel, dict(written), section=section)
        self._population = population
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="reflection")
        self._asked: Future[Any] | None = None

    def at_step(self, step: int) -> None:
        """Takes an answer that has come, and asks again every few steps; never waits."""
        if self._asked is not None and self._asked.done():
            self._take(self._asked)
            self._asked = None
        if self._model is not None and self._asked is None and step > 1 and step % self._population.settings.every == 0:
            asking = self._model.ask([Message("user", self._population.reflection())])
            self._asked = self._threads.submit(asyncio.run, asking)

    def _take(self, answered: Future[Any]) -> None:
        try:
            reply = answered.result()
        except Exception:  # a helper of the training never ends it
            _log.exception("no new instruction could be asked for")
            return
        text = last_block([reply.text or ""], "instruction")
        if text is None or not self._population.propose(text):
            _log.info("no new instruction came of a reflection: %s", reply.failure or repr(reply.text)[:200])


def add_instructions(batch: Any, uids: Sequence[str], population: InstructionPopulation) -> None:
    """Writes the instruction of each group into a column that the agent loop reads."""
    prompts = [_last_text(prompt) for prompt in batch["raw_prompt"]]
    chosen = [population.draw(uid, prompt) for uid, prompt in zip(uids, prompts, strict=True)]
    batch[INSTRUCTION] = cast("Any", NonTensorStack)(*chosen)


def _last_text(prompt: Any) -> str:
    messages = getattr(prompt, "data", prompt)
    return str(list(messages)[-1]["content"])
