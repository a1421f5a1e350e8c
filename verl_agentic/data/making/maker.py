"""The contract of makers: candidates, and a check that each must pass."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.settings import did_you_mean, read_settings
from verl_agentic.base.types import Message
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.text.json_answers import load_json_answer

Record = dict[str, Any]


class RefusedError(Exception):
    """A candidate cannot be made; the text is the reason."""


class NoReplyError(EnvError):
    """The model gave no reply; the candidate is made again when the command is repeated."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One piece of work."""

    key: str
    """Unique, and the same whenever the command is repeated."""
    record: Callable[[], Awaitable[Record]]
    """Makes the row. Raises RefusedError or NoReplyError."""


class Maker(Protocol):
    """A kind of data: a subclass of `Settings`, whose fields are the options of the kind.

    `KEEPS_NEAR = True` keeps rows that are nearly equal to rows of the same file. `write_beside(out, rows)` is called
    with the rows that were written.
    """

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterable[Candidate]:
        """Returns `n` candidates, or fewer if there are no more; equal arguments give equal keys.

        Raises:
            ConfigError: the kind needs a model.
        """
        ...

    async def verify(self, record: Record) -> str | None:
        """Returns why a row must not be written, as `short reason` or `short reason: details`; None if it is right."""
        ...


def maker_names() -> list[str]:
    """Returns the kinds of data."""
    return sorted(module.name for module in pkgutil.iter_modules(_import_makers().__path__))


def load_maker(name: str, options: Mapping[str, Any]) -> Maker:
    """Returns a maker. Raises ConfigError if the name or an option is unknown."""
    if name not in maker_names():
        raise ConfigError(
            f"unknown kind of data, got {name!r}; one of {maker_names()}{did_you_mean(name, maker_names())}"
        )
    maker_class = importlib.import_module(f"{_import_makers().__name__}.{name}").MAKER
    return read_settings(maker_class, options, section=name)


async def ask(model: ChatModel, prompt: str, *, system: str = "") -> str:
    """Returns a model's reply. Raises RefusedError if it is cut, NoReplyError if there is no whole one."""
    messages = [Message("system", system)] if system else []
    reply = await model.ask([*messages, Message("user", prompt)])
    if reply.is_cut and reply.failure:
        raise RefusedError(reply.failure)
    if reply.text is None:
        raise NoReplyError(reply.failure or "no reply")
    return reply.text.strip()


async def ask_json(model: ChatModel, prompt: str, *, system: str = "") -> Any:
    """Returns a model's reply as JSON, see `load_json_answer`. Raises RefusedError if it is not JSON."""
    text = await ask(model, prompt, system=system)
    try:
        return load_json_answer(text, with_prose=True)
    except (ValueError, RecursionError) as cause:
        raise RefusedError(f"the reply is not JSON: {text[:200]}") from cause


def needed(model: ChatModel | None, kind: str) -> ChatModel:
    """Returns the model. Raises ConfigError if there is none."""
    if model is None:
        raise ConfigError(f"{kind} needs a model, got none; give --url and --model")
    return model


def _import_makers() -> Any:
    return importlib.import_module("verl_agentic.data.makers")
