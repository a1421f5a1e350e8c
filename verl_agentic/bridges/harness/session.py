"""The requests of one agent, sorted into conversations."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_agentic.bridges.harness.wire import ChatAnswer, ChatAsked, Schema, num_shared
from verl_agentic.env import SideConversation
from verl_agentic.errors import DataError, boundary
from verl_agentic.tools.delegate import NoAnswerError
from verl_agentic.types import Action, Message, NewRow

OpenSide = Callable[[], SideConversation]
CountTokens = Callable[[Sequence[Message], Sequence[Schema]], Awaitable[int]]


class EpisodeOverError(Exception):
    """The episode, or the conversation of a request, is over. Never leaves this package."""


@dataclass(eq=False, kw_only=True)
class Conversation:
    """Messages that the policy has seen and written."""

    tools: tuple[Schema, ...] = ()
    seen: list[Message] = field(default_factory=list)
    """The last request, and the answer to it."""
    actions: dict[int, Action] = field(default_factory=dict)
    """Place in `seen` -> the turn that wrote it."""
    is_busy: bool = False
    """Whether a request waits for its answer."""
    is_over: bool = False
    """Whether it cannot be continued."""
    side: SideConversation | None = None
    """None: the agent's own conversation."""

    def num_added(self, asked: ChatAsked) -> int:
        """Returns the number of messages that a request adds; 0 if it does not continue this conversation."""
        if self.is_busy or self.is_over or not self.seen or self.tools != asked.tools:
            return 0
        is_longer = num_shared(self.seen, asked.messages) == len(self.seen)
        return len(asked.messages) - len(self.seen) if is_longer else 0

    def has_instructions_of(self, asked: ChatAsked) -> bool:
        """Returns whether a request begins with the same messages of the system, or also without any."""
        return _instructions(self.seen) == _instructions(asked.messages)

    def add_turn(self, action: Action, answer: ChatAnswer) -> None:
        """Adds a turn of the policy."""
        self.actions[len(self.seen)] = action
        self.seen.append(answer.message)
        self.is_busy = False


def _instructions(messages: Iterable[Message]) -> list[str]:
    return [message.content for message in itertools.takewhile(lambda m: m.role == "system", messages)]


@dataclass(eq=False, kw_only=True)
class Exchange:
    """A request and its answer."""

    asked: ChatAsked
    conversation: Conversation
    answer: asyncio.Future[ChatAnswer]
    is_first: bool = False
    """Whether it begins its conversation."""
    num_connected: int = 0
    """Number of connections that wait for the answer."""
    is_delivered: bool = False


@dataclass(eq=False, kw_only=True)
class AgentSession:
    """The requests of one agent.

    - A request that adds messages to a conversation continues it.
    - Another one with the same messages of the system rewrites the agent's own conversation, unless that conversation
      waits for an answer.
    - Every other request begins a side conversation.
    - A request that was repeated before its answer arrived gets the same answer.
    """

    max_side_conversations: int
    open_side: OpenSide | None = None
    count: CountTokens | None = None
    requests: asyncio.Queue[Exchange] = field(default_factory=asyncio.Queue)
    """Requests of the agent's own conversation."""
    main: Conversation = field(default_factory=Conversation)
    known: list[Conversation] = field(default_factory=list)
    """All conversations."""
    stored: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    """Id of an answer -> the conversation up to and with it."""
    refusals: list[str] = field(default_factory=list)
    """Why requests were refused."""
    failure: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Gets the exception that ends the episode."""
    over: str = ""
    """Why the episode is over; empty while it runs."""
    _exchanges: dict[bytes, Exchange] = field(default_factory=dict)
    """The last request of each key."""
    _open: set[Exchange] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _prompt: tuple[Message, ...] = ()
    _num_answers: int = 0

    async def ask(self, asked: ChatAsked, *, key: bytes, is_retry: bool) -> ChatAnswer:
        """Returns the answer to a request.

        Args:
            asked: the request.
            key: the same for equal requests.
            is_retry: whether the client says that it has sent the request before.

        Raises:
            EpisodeOverError, DataError: there is none.
        """
        exchange = self._exchanges.get(key)
        if exchange is None or not (is_retry or not (exchange.is_delivered or exchange.num_connected)):
            if self.over:
                raise EpisodeOverError(self.over)
            exchange = self._exchanges[key] = self._assign(asked)
        exchange.num_connected += 1
        try:
            answer = await asyncio.shield(exchange.answer)
            exchange.is_delivered = True
            return answer
        finally:
            exchange.num_connected -= 1

    def answer(self, exchange: Exchange, action: Action) -> None:
        """Answers a request with a turn of the policy."""
        self._num_answers += 1
        stops = exchange.asked.limits.stop_texts
        answer = ChatAnswer.of(action, id=f"turn_{self._num_answers}", stop_texts=stops)
        exchange.conversation.add_turn(action, answer)
        if exchange.asked.is_stored:
            self.stored[answer.id] = tuple(exchange.conversation.seen)
        if not exchange.answer.done():
            exchange.answer.set_result(answer)

    def new_row(self, asked: ChatAsked) -> NewRow:
        """Returns the row of a request that continues no conversation. It uses the tokens of the longest known one."""
        messages = tuple(
            m if m.role != "user" or m in self._prompt else replace(m, quoted=m.content) for m in asked.messages
        )
        length, after = 0, None
        for conversation in self.known:
            shared = num_shared(conversation.seen, messages) if conversation.tools == asked.tools else 0
            at = max((at for at in conversation.actions if at < shared), default=-1)
            added = messages[at + 1 :]
            if at + 1 > length and added and all(m.role != "assistant" for m in added):
                length, after = at + 1, conversation.actions[at]
        return NewRow(messages=messages, tools=asked.tools, after=after, num_shared=length)

    def added(self, conversation: Conversation, asked: ChatAsked) -> tuple[Message, ...]:
        """Returns the messages of a rewritten conversation that are new in it."""
        return tuple(m for m in asked.messages if m.role != "assistant" and m not in conversation.seen)

    async def count_tokens(self, asked: ChatAsked) -> int:
        """Returns the number of tokens of a request's messages and tools, as the chat template encodes them.

        Raises:
            DataError: they cannot be encoded.
        """
        if self.count is None:
            raise DataError("tokens cannot be counted here")
        with boundary(DataError, "encoding the messages"):
            return await self.count(asked.messages, asked.tools)

    async def end(self, reason: str) -> None:
        """Refuses all requests, waiting ones too, and ends all side conversations."""
        self.over = self.over or reason
        for exchange in tuple(self._open):
            _fail(exchange, EpisodeOverError(self.over))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.failure.cancel() and not self.failure.cancelled():
            self.failure.exception()  # retrieved: asyncio would print it

    def _assign(self, asked: ChatAsked) -> Exchange:
        best = max(self.known, key=lambda conversation: len(conversation.seen) * bool(conversation.num_added(asked)),
                   default=None)  # fmt: skip
        conversation = best if best is not None and best.num_added(asked) else None
        is_first = conversation is None
        if conversation is None and not self.main.is_busy and (not self.known or self.main.has_instructions_of(asked)):
            self._prompt = self._prompt or asked.messages
            self.main.is_over = True
            conversation = self.main = Conversation()
            self.known.append(conversation)
        elif conversation is None:
            conversation = self._side()
        conversation.is_busy = True
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        exchange = Exchange(asked=asked, conversation=conversation, answer=future, is_first=is_first)
        self._open.add(exchange)
        future.add_done_callback(lambda done: (self._open.discard(exchange), done.exception()))
        if conversation is self.main:
            self.requests.put_nowait(exchange)
        else:
            self._start_side(exchange)
        return exchange

    def _side(self) -> Conversation:
        num_sides = sum(conversation.side is not None for conversation in self.known)
        if self.open_side is None or num_sides >= self.max_side_conversations:
            raise EpisodeOverError(
                f"more than {self.max_side_conversations} side conversations; raise agentic.env_config.max_sides"
            )
        self.known.append(Conversation(side=self.open_side()))
        return self.known[-1]

    def _start_side(self, exchange: Exchange) -> None:
        # In the context of the episode, not of the request, so that its timeline has the turn.
        task = self._context.run(asyncio.get_running_loop().create_task, self._answer_side(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_side(self, exchange: Exchange) -> None:
        conversation, asked = exchange.conversation, exchange.asked
        assert conversation.side is not None
        try:
            new: Any = self.new_row(asked) if exchange.is_first else asked.messages[len(conversation.seen) :]
            conversation.seen, conversation.tools = list(asked.messages), asked.tools
            self.answer(exchange, await conversation.side.answer(new, limits=asked.limits))
        except (NoAnswerError, DataError) as cause:
            conversation.is_over = True
            _fail(exchange, EpisodeOverError(str(cause)) if isinstance(cause, NoAnswerError) else cause)
        except Exception as cause:
            conversation.is_over = True
            _fail(exchange, EpisodeOverError("the policy failed"))
            if not self.failure.done():
                self.failure.set_exception(cause)


def _fail(exchange: Exchange, cause: Exception) -> None:
    if not exchange.answer.done():
        exchange.answer.set_exception(cause)
