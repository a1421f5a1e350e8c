"""Simulated customers: scripted ones, and language models behind an endpoint."""

from __future__ import annotations

import re
from typing import Protocol

from verl_agentic import Message
from verl_agentic.errors import EnvError
from verl_agentic.rewards.models.chat_model import ChatModel

from .scenario import Script

STOP_MARKERS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""Texts by which tau2's users end the conversation."""
_CONFIRM = re.compile(
    r"\b(confirm|proceed|go ahead|shall i|should i|may i do|do you agree|is (that|this) (right|correct|ok))"
)
_MORE = re.compile(r"\b(anything else|something else|further help)\b")
_MAX_SILENCES = 2
_GUIDELINES = """You play a customer who writes to a support desk. Stay in the role that the scenario describes.
- Write one short message at a time, in your own words.
- Say only what the scenario tells you. If you do not know something, say so.
- Give details when you are asked for them, not before.
- When everything you want is done, or refused for good, answer ###STOP### and nothing else.
- When you are handed over to another person, answer ###TRANSFER### and nothing else.
- When the scenario does not say how to go on, answer ###OUT-OF-SCOPE### and nothing else."""
GREETING = "Hello! How can I help you today?"
"""The message of the desk before the customer opens the conversation."""


class User(Protocol):
    """A customer of one conversation."""

    async def open(self) -> str:
        """Returns the first message."""
        ...

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message of the desk, or None if the conversation is over."""
        ...


class ScriptedUser:
    """A customer who answers questions from a list of facts, says yes when asked to confirm, and then makes the next
    request. Deterministic: the same messages get the same answers."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._next = 1
        self._silences = 0

    async def open(self) -> str:
        """Returns the first request."""
        return self._script.messages[0]

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message; see the class."""
        said = text.lower()
        if not said.strip():
            self._silences += 1
            return None if self._silences > _MAX_SILENCES else "Are you still there?"
        answers = []
        if "?" in said or "please" in said:
            answers = [fact for pattern, fact in self._script.facts.items() if re.search(pattern, said)]
        if _CONFIRM.search(said):
            answers.append("Yes, please go ahead.")
        if answers and not _MORE.search(said):
            return " ".join(answers)
        if self._next < len(self._script.messages):
            self._next += 1
            return self._script.messages[self._next - 1]
        return None


class ModelUser:
    """A customer who is played by a language model, from the scenario of the row."""

    def __init__(self, scenario: str, model: ChatModel) -> None:
        self._model = model
        self._messages = [Message("system", f"{_GUIDELINES}\n\nScenario:\n{scenario}")]

    async def open(self) -> str:
        """Returns the first message. Raises EnvError if the endpoint gives none."""
        return await self.reply(GREETING) or ""

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message, or None at a stop marker. Raises EnvError if the endpoint gives none."""
        self._messages.append(Message("user", text or "(no message)"))
        reply = await self._model.ask(self._messages)
        said = reply.text or ""
        if not said.strip():
            why = reply.failure or "an empty one"
            raise EnvError(f"the simulated user gave no message, got {why}; see {self._model.url}")
        self._messages.append(Message("assistant", said))
        return None if any(marker in said for marker in STOP_MARKERS) else said
