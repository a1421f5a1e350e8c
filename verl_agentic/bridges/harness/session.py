"""The requests of one agent, sorted into conversations."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from verl_agentic.base.env import AgentConversation
from verl_agentic.base.errors import DataError, boundary
from verl_agentic.base.tools.delegate import NoAnswerError
from verl_agentic.base.types import Action, Message, NewRow, Observation, StopReason
from verl_agentic.bridges.harness.conversation import (
    Branch,
    Conversation,
    choose_own,
    find_continued,
    find_restarted,
    is_probe,
    task_of,
    with_turns_of,
)
from verl_agentic.bridges.harness.dialects.wire import ChatAnswer, ChatAsked, Schema, num_shared

OpenConversation = Callable[[], AgentConversation]
CountTokens = Callable[[Sequence[Message], Sequence[Schema]], Awaitable[int]]


class EpisodeOverError(Exception):
    """The episode, or the conversation of a request, is over. Never leaves this package."""


@dataclass(eq=False, kw_only=True)
class Exchange:
    """A request and its answer."""

    asked: ChatAsked
    conversation: Conversation
    observation: Observation
    """What is new in the request."""
    answer: asyncio.Future[ChatAnswer]
    num_connected: int = 0
    """Number of connections that wait for the answer."""
    is_delivered: bool = False


@dataclass(eq=False, kw_only=True)
class AgentSession:
    """The requests of one agent.

    A request belongs to the conversation that it continues, rewrites or restarts (`conversation`), unless that one
    waits for an answer. Any other request begins a conversation. A request that was repeated before its answer arrived
    gets the same answer.
    """

    max_sides: int
    own_pattern: re.Pattern[str] | None = None
    trusted: tuple[Message, ...] = ()
    """Messages of the task, which no policy wrote."""
    count: CountTokens | None = None
    known: list[Conversation] = field(default_factory=list)
    """All conversations."""
    stored: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    """Id of an answer -> the conversation up to and with it."""
    refusals: list[str] = field(default_factory=list)
    """Why requests were refused."""
    failure: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Gets the exception that ends the episode."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every request, and by every answer."""
    first: Exchange | None = None
    over: str = ""
    """Why the episode is over; empty while it runs."""
    result: str = ""
    """What the agent returned, as text."""
    num_answers: int = 0
    data_error: DataError | None = None
    """Why a conversation could not be encoded."""
    last_cut: int | None = None
    """Tokens that the request of the last answer allowed, if they were too few for the turn."""
    _exchanges: dict[bytes, Exchange] = field(default_factory=dict)
    """The last request of each key."""
    _open_conversation: OpenConversation | None = None
    _open: dict[Exchange, None] = field(default_factory=dict)
    """Requests without an answer, in their order."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _context: contextvars.Context | None = None

    @property
    def own(self) -> Conversation | None:
        """The agent's own conversation, as far as the requests show it until now (`choose_own`)."""
        return choose_own(self.known, pattern=self.own_pattern, result=self.result if self.over else None)

    @property
    def own_stop(self) -> StopReason | None:
        """Why the agent's own conversation is over; None while it is not."""
        conversation = self.own
        return None if conversation is None or conversation.side is None else conversation.side.stop

    @property
    def stops(self) -> list[StopReason]:
        """Why conversations are over."""
        sides = [conversation.side for conversation in self.known if conversation.side is not None]
        return [side.stop for side in sides if side.stop is not None]

    @property
    def is_waiting(self) -> bool:
        """Returns whether a request waits for the policy."""
        return bool(self._open)

    def serve(self, open_conversation: OpenConversation) -> None:
        """Begins to answer requests, in the context of the caller."""
        self._open_conversation, self._context = open_conversation, contextvars.copy_context()
        for exchange in tuple(self._open):
            self._start_answer(exchange)

    async def ask(self, request: ChatAsked, *, key: bytes, is_retry: bool) -> ChatAnswer:
        """Returns the answer to a request.

        Args:
            key: the same for equal requests.
            is_retry: whether the client says that it has sent the request before.

        Raises:
            EpisodeOverError, DataError: the request gets no answer.
        """
        exchange = self._exchanges.get(key)
        if exchange is None or not (is_retry or not (exchange.is_delivered or exchange.num_connected)):
            if self.over:
                raise EpisodeOverError(self.over)
            exchange = self._exchanges[key] = self._open_exchange(request)
        exchange.num_connected += 1
        try:
            answer = await asyncio.shield(exchange.answer)
            exchange.is_delivered = True
            return answer
        finally:
            exchange.num_connected -= 1

    async def count_tokens(self, request: ChatAsked) -> int:
        """Returns the number of tokens of a request's messages and tools, as the chat template encodes them.

        Raises:
            DataError: they cannot be encoded.
        """
        if self.count is None:
            raise DataError("tokens cannot be counted here")
        with boundary(DataError, "encoding the messages"):
            return await self.count(request.messages, request.tools)

    async def end(self, reason: str) -> None:
        """Refuses all requests, waiting ones too."""
        self.over = self.over or reason
        for exchange in tuple(self._open):
            _fail_exchange(exchange, EpisodeOverError(self.over))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.failure.cancel() and not self.failure.cancelled():
            self.failure.exception()  # retrieved: asyncio would print it

    def _open_exchange(self, request: ChatAsked) -> Exchange:
        """Returns the exchange of a request, which waits for its answer."""
        conversation, observation = self._place_request(request)
        conversation.is_busy = True
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        exchange = Exchange(asked=request, conversation=conversation, observation=observation, answer=future)
        self.first = self.first or exchange
        self._open[exchange] = None
        future.add_done_callback(lambda _: self._close_exchange(exchange))
        self.changed.set()
        if self._context is not None:
            self._start_answer(exchange)
        return exchange

    def _start_answer(self, exchange: Exchange) -> None:
        # In the context of the episode, not of the request, so that its timeline has the turn.
        assert self._context is not None
        task = self._context.run(asyncio.get_running_loop().create_task, self._answer_exchange(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_exchange(self, exchange: Exchange) -> None:
        self._open.pop(exchange, None)
        if not exchange.answer.cancelled():
            exchange.answer.exception()  # retrieved: asyncio would print it
        self.changed.set()

    def _place_request(self, request: ChatAsked) -> tuple[Conversation, Observation]:
        """Returns the conversation of a request, and what is new in it."""
        probes = is_probe(request)
        place = None if probes else find_continued(request, self.known)
        conversation, branch = place or (None, None)
        if branch is not None:
            request = replace(request, messages=with_turns_of(request, branch))
        elif not probes:
            conversation = find_restarted(request, self.known, find_own=lambda: self.own)
        if conversation is not None and conversation.side is not None and conversation.side.stop is not None:
            raise EpisodeOverError(f"the conversation is over ({conversation.side.stop.value})")
        if conversation is None or conversation.is_busy:
            return self._begin_conversation(request, branch, probes=probes)
        if conversation.branch.is_continued_by(request):
            added = request.messages[len(conversation.branch.seen) :]
            conversation.branch.seen = list(request.messages)
            return conversation, Observation(added)
        added = _list_new_messages(conversation, request)
        new_row = self._new_row(request)
        conversation.branches.append(Branch.of(request, origin=branch))
        return conversation, Observation(added, new_row=new_row)

    def _begin_conversation(
        self, request: ChatAsked, origin: Branch | None, *, probes: bool
    ) -> tuple[Conversation, Observation]:
        """Returns a new conversation, which may part from a branch of another one."""
        num_others = sum(not conversation.is_probe for conversation in self.known)
        if not probes and num_others > self.max_sides:
            raise EpisodeOverError(f"more than {self.max_sides} side conversations; raise agentic.env_config.max_sides")
        if not self.num_answers:
            self.trusted += request.messages
        new_row = self._new_row(request)
        branch = Branch.of(request, origin=origin)
        conversation = Conversation(
            task=task_of(request),
            is_probe=probes,
            branches=[branch],
            num_turns=len(branch.turns),
            num_answers_before=self.num_answers,
        )
        self.known.append(conversation)
        return conversation, Observation(new_row=new_row)

    def _new_row(self, request: ChatAsked) -> NewRow:
        """Returns a new row for a request. It uses the tokens of the longest known history that it repeats."""
        messages = tuple(
            m if m.role != "user" or m in self.trusted else replace(m, quoted=m.content) for m in request.messages
        )
        length, after = 0, None
        for branch in (branch for conversation in self.known for branch in conversation.branches):
            shared = num_shared(branch.seen, messages) if branch.tools == request.tools else 0
            place = max((place for place in branch.actions if place < shared), default=-1)
            added = messages[place + 1 :]
            if place + 1 > length and added and all(m.role != "assistant" for m in added):
                length, after = place + 1, branch.actions[place]
        return NewRow(messages=messages, tools=request.tools, after=after, num_shared=length)

    async def _answer_exchange(self, exchange: Exchange) -> None:
        conversation, request = exchange.conversation, exchange.asked
        assert self._open_conversation is not None
        conversation.side = conversation.side or self._open_conversation()
        try:
            action = await conversation.side.answer(exchange.observation, limits=request.limits)
        except (NoAnswerError, DataError) as cause:
            conversation.is_busy = False
            if isinstance(cause, DataError):
                self.data_error = self.data_error or cause
                if not conversation.last_answer:
                    self.known.remove(conversation)  # the agent may try again
            _fail_exchange(exchange, EpisodeOverError(str(cause)) if isinstance(cause, NoAnswerError) else cause)
        except asyncio.CancelledError:
            raise
        except BaseException as cause:  # preflight leaves an episode by one that is no Exception
            _fail_exchange(exchange, EpisodeOverError("the policy failed"))
            if not self.failure.done():
                self.failure.set_exception(cause)
        else:
            self._deliver_turn(exchange, action)

    def _deliver_turn(self, exchange: Exchange, action: Action) -> None:
        """Answers a request with a turn of the policy."""
        self.num_answers += 1
        limits = exchange.asked.limits
        answer = ChatAnswer.of(action, id=f"turn_{self.num_answers}", stop_texts=limits.stop_texts)
        self.last_cut = limits.max_tokens if answer.finish == "length" else None
        exchange.conversation.add_turn(action, answer, number=self.num_answers)
        if exchange.asked.is_stored:
            self.stored[answer.id] = tuple(exchange.conversation.branch.seen)
        if not exchange.answer.done():
            exchange.answer.set_result(answer)


def _list_new_messages(conversation: Conversation, request: ChatAsked) -> tuple[Message, ...]:
    """Returns the messages that are new in a rewritten conversation."""
    return tuple(
        message
        for message in request.messages
        if message.role in ("user", "tool") and not any(message in branch.seen for branch in conversation.branches)
    )


def _fail_exchange(exchange: Exchange, cause: Exception) -> None:
    if not exchange.answer.done():
        exchange.answer.set_exception(cause)
