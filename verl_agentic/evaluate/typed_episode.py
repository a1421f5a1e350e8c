"""An episode whose turns a person types in the terminal, through the protocol and the codec of training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import Env, EnvFactory, Transcript
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.types import Action, Message, Observation, Reward, Tool, ToolCall
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.collect import Turn, scripted
from verl_agentic.evaluate.evaluation_log import EpisodeRows
from verl_agentic.evaluate.evaluation_run import EvaluationAttempt, PolicyBackend, attempt_runner

HELP = 'type an answer, or: /call TOOL {"argument": 1}   /raw TEXT (as the model writes it)   /quit'
_DAY_S = 86_400.0
LIMITS = EpisodeLimits(
    max_response_tokens=2_000_000,
    max_context_tokens=4_000_000,
    max_turns=512,
    max_retries=0,
    turn_timeout_s=_DAY_S,
    episode_timeout_s=_DAY_S,
)
"""Limits that a person does not reach."""


class LeftError(Exception):
    """The person has left the episode."""


@dataclass(kw_only=True)
class Terminal:
    """Shows text to the person, and reads what they type."""

    show: Callable[[str, str], None]
    """Prints a text in a style of rich."""
    read: Callable[[], str]
    """Returns the next typed line; may block. Raises EOFError at the end of the input."""
    has_left: bool = False
    _shown_texts: list[str] = field(default_factory=list)
    """Texts of the messages so far that the person did not type."""

    def show_tools(self, env: Env) -> None:
        """Prints the tools with their arguments."""
        for schema in list_schemas(env.tools):
            function = schema["function"]
            properties = (function.get("parameters") or {}).get("properties") or {}
            arguments = ", ".join(f"{name}: {value.get('type', 'any')}" for name, value in properties.items())
            self.show(f"{function['name']}({arguments}): {function.get('description', '')}", "cyan")

    def show_messages(self, messages: Sequence[Message]) -> None:
        """Prints messages."""
        for message in messages:
            self.show(f"[{f'{message.role} {message.name}'.strip()}]", "bold")
            self.show(message.content, "red" if message.is_error else "")
            if message.error_place:
                self.show(f"raised at {message.error_place} (the policy does not see this line)", "yellow")

    async def type_turn(self, messages: Sequence[Message]) -> Turn:
        """Prints what is new in the conversation, and returns the turn that the person types.

        Raises:
            LeftError: the person leaves.
        """
        others = [message for message in messages if message.role != "assistant"]
        texts = [message.content for message in others]
        if not self._shown_texts or texts[: len(self._shown_texts)] != self._shown_texts:
            self.show("the conversation is:", "dim")
            self.show_messages(messages)
        else:
            self.show_messages(others[len(self._shown_texts) :])
        self._shown_texts = texts
        while True:
            try:
                return parse_turn((await in_thread(self.read)).strip())
            except (EOFError, LeftError) as cause:
                self.has_left = True
                raise LeftError from cause
            except ValueError as error:
                self.show(f"{error}; {HELP}", "yellow")


def parse_turn(line: str) -> Turn:
    """Returns a typed line as a turn.

    Raises:
        LeftError: it is `/quit`.
        ValueError: it is no turn.
    """
    command, _, rest = line.partition(" ")
    if command == "/quit":
        raise LeftError
    if command == "/raw":
        return rest
    if not line or (line.startswith("/") and command != "/call"):
        raise ValueError(f"this is no turn, got {line!r}")
    if command != "/call":
        return Message("assistant", line)
    name, _, text = rest.strip().partition(" ")
    try:
        arguments = json.loads(text or "{}")
    except ValueError as cause:
        raise ValueError(f"the arguments must be JSON, got {text!r}: {cause}") from cause
    if not re.fullmatch(r"\S+", name) or not isinstance(arguments, dict):
        raise ValueError(f"a call has a tool and an object of arguments, got {line!r}")
    return Message("assistant", "", tool_calls=(ToolCall(name, arguments),))


async def play_typed(
    attempt: EvaluationAttempt, *, make_env: EnvFactory, codec: Codec, tokenizer: Any, terminal: Terminal
) -> EpisodeRows | None:
    """Runs one episode with typed turns; returns its rows for the log, or None if the person left.

    Args:
        attempt: names the row.
        make_env: makes the environment.
        codec: the protocol.
        tokenizer: of the codec.
    """
    setup = scripted(terminal.type_turn, codec=codec, tokenizer=tokenizer, limits=LIMITS)
    backend = PolicyBackend(setup=setup, usage={}, id_source=lambda: "approximate")
    run = attempt_runner(lambda row: _WatchedEnv(make_env(row), terminal), lambda _: backend)
    rows = await run(attempt)
    return None if terminal.has_left else rows


class _WatchedEnv:
    """An environment whose tools, rewards and last observation the person sees (`env.Env`)."""

    def __init__(self, env: Env, terminal: Terminal) -> None:
        self._env, self._terminal = env, terminal

    @property
    def tools(self) -> Sequence[Tool]:
        return self._env.tools

    async def start(self) -> tuple[Message, ...]:
        prompt = await self._env.start()
        self._terminal.show_tools(self._env)
        return prompt

    async def step(self, action: Action) -> Observation:
        observation = await self._env.step(action)
        if observation.reward:
            self._terminal.show(f"reward of this turn: {observation.reward:g}", "magenta")
        if observation.stop is not None:  # the policy does not see these messages
            self._terminal.show_messages(observation.messages)
        return observation

    async def score(self, transcript: Transcript) -> Reward:
        return await self._env.score(transcript)

    async def close(self) -> None:
        await self._env.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
