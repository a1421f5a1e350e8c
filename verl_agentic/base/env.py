"""Interface of environments."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.reasoning import outside_reasoning
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, Tool, TurnLimits

SUB_AGENT = "sub_agent"
"""Role of a sub-agent without another one."""


@dataclass(frozen=True, kw_only=True)
class EnvRow:
    """The dataset row that an episode plays."""

    prompt: tuple[Message, ...]
    ground_truth: Any = None
    data_source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The row's `extra_info`; shared by the siblings of a group: never change it in place."""


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """Record of an episode for scorers: messages with their authors, never one flat string."""

    messages: tuple[Message, ...]
    actions: tuple[Action, ...]
    stop_reason: StopReason

    @property
    def final_answer(self) -> str:
        """The complete answer of the last turn, without reasoning: the text that the protocol marks as the answer, else
        the content of a turn without calls.

        It is empty if the last turn makes a call, also a malformed one. A budget may have cut the turn: demand
        `stop_reason is StopReason.ANSWERED` where a part of an answer could pass for a whole one.
        """
        if not self.actions:
            return ""
        last = self.actions[-1]
        if last.answer is not None:
            return outside_reasoning(last.answer)
        return "" if last.tool_calls else outside_reasoning(last.content)


class Env(Protocol):
    """One living environment, used by exactly one attempt at an episode.

    The loop calls `start` once, `step` once per turn, `score` once when the episode is over (unless it is void)
    and `close` exactly once whatever happens, also after a failed `start`. Anything but `AgenticError` that
    escapes is taken for a failure of the environment, and the trajectory is void.

    An environment may have the methods of optional features too, such as `HasStateKey` (`optional`).
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools whose schemas go into the prompt; may be empty. They may change in `step`: the loop announces the
        difference to the policy in a message after the observation."""
        ...

    async def start(self) -> tuple[Message, ...]:
        """Prepares the environment and returns the messages of the prompt."""
        ...

    async def step(self, action: Action) -> Observation:
        """Carries out one turn of the policy."""
        ...

    async def score(self, transcript: Transcript) -> Reward:
        """Returns what the episode earned, while the environment is still alive."""
        ...

    async def close(self) -> None:
        """Releases everything; must not fail when `start` did not succeed."""
        ...


class SubAgentRunner(Protocol):
    """Runs a task with a fresh copy of the policy; the loop passes it to the environment."""

    async def __call__(
        self,
        prompt: Sequence[Message],
        *,
        tools: Sequence[Tool],
        max_turns: int,
        max_calls: int | None = None,
        is_trained: bool = True,
        agent: str = SUB_AGENT,
    ) -> str:
        """Returns the final answer, never empty; the turns become training rows of the episode.

        Args:
            prompt: of the sub-agent.
            tools: of the sub-agent.
            max_turns: of the sub-agent.
            max_calls: of one of its turns; None: that of the episode.
            is_trained: False leaves its turns out of training, for work whose reward is not that of the episode.
            agent: its role, which its rows carry; see `credit.estimate.CreditSettings.roles`.

        Raises:
            NoAnswerError: it ended without an answer; its turns are still training rows.
            EnvError, PolicyError: it failed; the whole episode becomes void.
        """
        ...


class UsesSubAgents(Protocol):
    """An environment that starts sub-agents."""

    def use_sub_agents(self, run: SubAgentRunner) -> None:
        """Takes what runs a sub-agent. Called before `start`."""
        ...


class CountsTokens(Protocol):
    """An environment whose prompt depends on numbers of tokens."""

    def use_token_counts(self, count: TokenCount) -> None:
        """Takes what counts the tokens of messages and tools. Called before `start`."""
        ...


class PlaysConversations(Protocol):
    """An environment that plays the episode itself, such as an agent program."""

    async def play_conversations(self, open_conversation: Callable[[], AgentConversation]) -> StopReason:
        """Plays the episode in conversations that it opens. Awaited after `start`, instead of `step`."""
        ...

    def own_conversation(self) -> AgentConversation | None:
        """Returns the conversation that is the episode's; the others are sub-agents. None if there is none."""
        ...


class Guides(Protocol):
    """An environment that can say what a failed attempt lacked."""

    async def guidance(self, transcript: Transcript) -> str:
        """Returns guidance for the next attempt. Awaited after a failure, where guidance is asked for."""
        ...


class HasStateKey(Protocol):
    """An environment whose states can be compared."""

    def state_key(self) -> str:
        """Returns a text that is equal for turns that start from the same state. Called before every turn."""
        ...


class LimitsTurns(Protocol):
    """An environment that limits single turns."""

    def turn_limits(self) -> TurnLimits:
        """Returns the limits of the next turn. Called before every turn."""
        ...


class SelectsAnswers(Protocol):
    """An environment that chooses between answers, for `evaluate --select`."""

    async def select(self, answers: Sequence[str]) -> int | None:
        """Returns the index of the best answer to the row, chosen without the ground truth. `start` is not called."""
        ...


F = TypeVar("F")


def optional(env: Env, feature: type[F]) -> F | None:
    """Returns an environment as one with an optional feature, or None if it has no method of the feature."""
    # Not isinstance: from Python 3.12 on it does not see what `__getattr__` of a wrapped environment passes on.
    return cast("F", env) if any(hasattr(env, name) for name in _list_methods(feature)) else None


@functools.cache
def _list_methods(feature: type) -> list[str]:
    return [name for name in vars(feature) if not name.startswith("_")]


def require_selection(env: Env) -> SelectsAnswers:
    """Returns an environment as one that selects answers. Raises ConfigError if it cannot."""
    if (selecting := optional(env, SelectsAnswers)) is None:
        raise ConfigError(f"--select needs an environment with select(answers), got {type(env).__name__}; add it")
    return selecting


class AgentConversation(Protocol):
    """A conversation of an agent program with the policy. Its turns are training rows of the episode."""

    @property
    def stop(self) -> StopReason | None:
        """The budget or failure that ended it; None while it can go on."""
        ...

    async def answer(self, observation: Observation, *, limits: TurnLimits) -> Action:
        """Samples a turn.

        Args:
            observation: the messages after the last turn. In the first call, and wherever the conversation was
                rewritten, also the whole conversation, `new_row`.

        Raises:
            NoAnswerError: a budget ended the conversation.
            DataError: the conversation cannot be rendered or is too long.
            EnvError, PolicyError: it failed; the whole episode must become void.
        """
        ...


TokenCount = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], Awaitable[int]]
EnvFactory = Callable[[EnvRow], Env]
is_training: ContextVar[bool] = ContextVar("is_training", default=False)
"""Whether the episode trains the policy. Only then may an environment keep something for later episodes."""
