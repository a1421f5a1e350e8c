"""The models that can be asked: scripted specialists, and models behind OpenAI-compatible endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verl_agentic import ConfigError, DataError, EnvError, Message
from verl_agentic.base.settings import Settings, read_settings, setting
from verl_agentic.base.text.reasoning import strip_thoughts
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.models.client import Price

from .world import make_world

_CHARS_PER_TOKEN = 4
_UNKNOWN = "I cannot help with this question. Please ask another model."
_NAME = re.compile(r"[A-Z][a-z]+")
_ASKED = (
    "Another model answers a question and asks you for a part of it. Answer briefly and only what you know. If you "
    "cannot help, say so."
)


@dataclass(frozen=True, kw_only=True)
class PoolReply:
    """A reply and its length."""

    text: str
    input_tokens: int
    output_tokens: int


class PoolModel(Protocol):
    """A model of the pool."""

    @property
    def description(self) -> str:
        """One line for the prompt: what the model is good at, and its price."""
        ...

    @property
    def price(self) -> Price:
        """Price per million tokens."""
        ...

    @property
    def timeout_s(self) -> float:
        """Deadline of a reply, in seconds."""
        ...

    async def ask(self, query: str) -> PoolReply:
        """Returns the reply. Raises EnvError if the model cannot be asked."""
        ...


@dataclass(frozen=True, kw_only=True)
class Specialist:
    """A scripted model that knows a part of the world. A token has four characters."""

    description: str
    price: Price
    answer: Callable[[str], str]
    timeout_s: float = 1.0

    async def ask(self, query: str) -> PoolReply:
        """Returns the scripted reply."""
        text = self.answer(query)
        return PoolReply(text=text, input_tokens=_num_tokens(query), output_tokens=_num_tokens(text))


class ServedModel(Settings):
    """A model behind an endpoint."""

    description: str
    """Line for the prompt."""
    endpoint: ChatModel
    """URL, name and sampling."""
    input_price: float = setting(0.0, min=0)
    """Price of a million prompt tokens. Router-R1 counts the tokens of replies only."""
    output_price: float = setting(min=0)
    """Price of a million tokens of replies."""

    @property
    def price(self) -> Price:
        """Price per million tokens."""
        return Price(input=self.input_price, output=self.output_price)

    @property
    def timeout_s(self) -> float:
        """Deadline of a reply, in seconds."""
        return self.endpoint.timeout_s

    async def ask(self, query: str) -> PoolReply:
        """Returns the reply of the endpoint, as far as it goes if it is cut at `max_tokens`.

        Raises:
            DataError: the endpoint refuses the query.
            EnvError: it gives no reply.
        """
        reply = await self.endpoint.ask([Message("system", _ASKED), Message("user", query)])
        if reply.is_refused:
            raise DataError(f"the model {self.endpoint.model!r} must take the question, got {reply.failure}")
        text = strip_thoughts(reply.content or "") if reply.is_cut else reply.text
        if text is None:
            raise EnvError(f"the model {self.endpoint.model!r} gives no reply, got {reply.failure}; see its server")
        return PoolReply(text=text, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)


def make_pool(models: Mapping[str, Any] | None) -> dict[str, PoolModel]:
    """Returns name -> model: the scripted specialists, or the models of a configuration.

    Raises:
        ConfigError: a name has a colon or capitals, or the settings of a model are wrong.
    """
    if models is None:
        return dict(SPECIALISTS)
    if not models or any(not name.strip() or ":" in name or name != name.lower() for name in models):
        raise ConfigError(f"models must have names in lower case without a colon, got {list(models)}; rename them")
    return {
        name: read_settings(ServedModel, dict(settings), section=f"models.{name}") for name, settings in models.items()
    }


def _num_tokens(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)


def _answer_people(query: str) -> str:
    world = make_world()
    for name in _NAME.findall(query):
        if name in world.home and "teacher" in query.lower():
            return f"The teacher of {name} is {world.teacher[name]}."
        if name in world.home:
            return f"{name} lives in the town {world.home[name]}."
    return _UNKNOWN


def _answer_geography(query: str) -> str:
    river = make_world().river
    answers = (f"{name} lies on the river {river[name]}." for name in _NAME.findall(query) if name in river)
    return next(answers, _UNKNOWN)


def _answer_everything(query: str) -> str:
    """Answers all questions, also those with two steps, at length."""
    world, lower = make_world(), query.lower()
    name = next((name for name in _NAME.findall(query) if name in world.home), None)
    if name is None or "river" not in lower:
        answers = f"{_answer_geography(query)} {_answer_people(query)}"
        return f"Thank you for the question, which I have considered with care. {answers}"
    home = world.home[name]
    return f"Let me think step by step. {name} lives in the town {home}, which lies on the river {world.river[home]}."


def _answer_guess(query: str) -> str:
    """Answers every question with the name of a wrong town."""
    towns = sorted(make_world().river)
    return f"It is {towns[sum(map(ord, query)) % len(towns)]}."


SPECIALISTS: Mapping[str, PoolModel] = {
    "census-8b": Specialist(
        description="knows where people live and who teaches them, nothing else; price 0.2 per million tokens",
        price=Price(output=0.2),
        answer=_answer_people,
    ),
    "atlas-8b": Specialist(
        description="knows on which river a town lies, nothing else; price 0.2 per million tokens",
        price=Price(output=0.2),
        answer=_answer_geography,
    ),
    "oracle-120b": Specialist(
        description="knows people and towns, and answers at length; price 1.8 per million tokens",
        price=Price(output=1.8),
        answer=_answer_everything,
    ),
    "guess-1b": Specialist(
        description="answers every question with confidence, mostly wrong; price 0.05 per million tokens",
        price=Price(output=0.05),
        answer=_answer_guess,
    ),
}
"""The pool of the offline form."""
