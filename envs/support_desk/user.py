"""Simulated customers: scripted ones, and language models behind an endpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from verl_agentic import ConfigError, Message
from verl_agentic.errors import EnvError
from verl_agentic.rewards.models.client import ChatClient, Patience, connections
from verl_agentic.rewards.models.limiter import EndpointLimits, Limiter
from verl_agentic.settings import Settings, setting

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
"""What the desk has said before the customer opens the conversation."""


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


@dataclass(frozen=True, kw_only=True)
class UserOptions(Settings):
    """A language model that plays the customer."""

    endpoint: str
    """URL that ends with `/v1`."""
    model: str
    """Name of the model."""
    api_key_env: str = ""
    """Name of the environment variable that holds the API key. Empty: no key is sent."""
    temperature: float = setting(0.0, min=0)
    max_tokens: int = setting(512, min=1)
    """Maximum number of tokens of a message."""
    timeout_s: float = setting(60.0, above=0)
    """Deadline of a message with all retries, in seconds. After it, the episode is retried, then void."""
    retries: int = setting(4, min=0)
    """Number of retries of a request."""
    concurrency: int = setting(32, min=1)
    """Maximum number of concurrent requests to the endpoint."""

    def check_together(self) -> None:
        if not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"an endpoint's URL begins with http:// or https://, got {self.endpoint!r}; write it out")

    @property
    def api_key(self) -> str:
        """The API key. Raises ConfigError if the variable is not set."""
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise ConfigError(f"the user's key comes from the environment variable {self.api_key_env!r}; set it")
        return os.environ.get(self.api_key_env, "")


class ModelUser:
    """A customer who is played by a language model, from the scenario of the row."""

    def __init__(self, scenario: str, options: UserOptions) -> None:
        self._options = options
        self._messages = [Message("system", f"{_GUIDELINES}\n\nScenario:\n{scenario}")]

    async def open(self) -> str:
        """Returns the first message. Raises EnvError if the endpoint gives none."""
        return await self.reply(GREETING) or ""

    async def reply(self, text: str) -> str | None:
        """Returns the answer to a message, or None at a stop marker. Raises EnvError if the endpoint gives none."""
        self._messages.append(Message("user", text or "(no message)"))
        said = await _ask(self._options, self._messages)
        self._messages.append(Message("assistant", said))
        return None if any(marker in said for marker in STOP_MARKERS) else said


async def _ask(options: UserOptions, messages: Sequence[Message]) -> str:
    body = {
        "model": options.model,
        "messages": [message.to_dict() for message in messages],
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
    }
    async with connections() as shared:
        where = ("support_desk", options.endpoint, options.concurrency)
        if where not in shared.limiters:
            shared.limiters[where] = Limiter(EndpointLimits(concurrency=options.concurrency), name=options.endpoint)
        client = ChatClient(
            shared.http,
            shared.limiters[where],
            url=options.endpoint,
            api_key=options.api_key,
            patience=Patience(timeout_s=options.timeout_s, retries=options.retries),
        )
        reply = await client.ask(body)
    if reply.text is None or not reply.text.strip():
        raise EnvError(
            f"the simulated user gave no message, got {reply.failure or 'an empty one'}; see {options.endpoint}"
        )
    return reply.text
