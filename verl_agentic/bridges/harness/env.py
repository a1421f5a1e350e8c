"""An agent program as an environment: its requests are the prompt and the observations."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from verl_agentic.bridges.harness.agent import Agent, PolicyEndpoint, visible_row
from verl_agentic.bridges.harness.container_agent import ContainerAgent
from verl_agentic.bridges.harness.gateway import Place, shared_gateway
from verl_agentic.bridges.harness.session import AgentSession, CountTokens, Exchange, OpenSide
from verl_agentic.bridges.harness.wire import Schema
from verl_agentic.env import EnvRow, Transcript
from verl_agentic.errors import EnvError, is_infrastructure
from verl_agentic.types import UNSCORED, Action, Message, NewRow, Observation, Reward, StopReason, TurnLimits

Score = Callable[..., Any]
OnFailure = Literal["score_0", "void"]
logger = logging.getLogger(__name__)
_HERE = "127.0.0.1"
_CANCEL_S = 5.0
_KEY_CHARS, _MAX_LOGGED = 40, 64
_logged: set[str] = set()
"""Starts of failures that were logged; a policy may cause them thousands of times."""


@dataclass(frozen=True)
class AgentTool:
    """A tool that the agent runs itself."""

    schema: Schema
    shows_own_schema = True
    """Model servers render the schema that the agent sends."""

    @property
    def name(self) -> str:
        """The name in calls."""
        return self.schema["function"]["name"]

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Raises EnvError: the agent answers the calls."""
        raise EnvError("the agent carries out its calls itself, got a call; use run_episode")


class HarnessEnv:
    """The environment of one episode of an agent.

    `start` launches the agent and returns the messages of its first request. `step` answers the waiting request with
    the turn that the policy sampled, and returns what the next request adds.
    """

    def __init__(
        self,
        row: EnvRow,
        *,
        agent: Agent,
        score: Score | None,
        place: Place,
        ignore: Collection[str],
        extra_keys: Collection[str],
        on_failure: OnFailure,
        agent_timeout_s: float,
        grace_s: float,
        max_sides: int,
    ) -> None:
        self._row, self._agent, self._score = row, agent, score
        self._visible_row = visible_row(row, extra_keys)
        self._place, self._ignore, self._on_failure = place, ignore, on_failure
        self._agent_timeout_s, self._grace_s, self._max_sides = agent_timeout_s, grace_s, max_sides
        self._open_side: OpenSide | None = None
        self._count_tokens: CountTokens | None = None
        self._stack = AsyncExitStack()
        self._session: AgentSession | None = None
        self._running: asyncio.Future[Any] | None = None
        self._exchange: Exchange | None = None
        self._new_row: NewRow | None = None
        self._failure = ""
        """Why the agent failed; empty if it did not."""
        self._num_answers = 0

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools of the last request."""
        return () if self._exchange is None else tuple(map(AgentTool, self._exchange.asked.tools))

    def use_side_conversations(self, open_side: OpenSide) -> None:
        """Sets the function that opens side conversations."""
        self._open_side = open_side

    def use_token_counts(self, count: CountTokens) -> None:
        """Sets the function that counts the tokens of a request."""
        self._count_tokens = count

    def turn_limits(self) -> TurnLimits:
        """Returns the limits that the waiting request sets."""
        return TurnLimits() if self._exchange is None else self._exchange.asked.limits

    async def start(self) -> tuple[Message, ...]:
        """Launches the agent and returns the messages of its first request."""
        place = self._place
        if not place.host:
            place = replace(place, host=await self._agent.host() if isinstance(self._agent, ContainerAgent) else _HERE)
        gateway = await self._stack.enter_async_context(shared_gateway(place))
        session = self._session = AgentSession(
            max_side_conversations=self._max_sides, open_side=self._open_side, count=self._count_tokens
        )
        key = gateway.open(session, ignore=self._ignore)
        self._stack.callback(gateway.close, key)
        endpoint = PolicyEndpoint(url=f"{gateway.url}/{key}", api_key=key)
        self._running = asyncio.ensure_future(self._agent(self._visible_row, endpoint))
        exchange = await self._next()
        if exchange is None:
            raise EnvError(f"the agent ended without a request to the policy, got {self._running.result()!r:.300}")
        return exchange.asked.messages

    async def step(self, action: Action) -> Observation:
        """Answers the waiting request; returns what the next request adds."""
        session, answered = self._session, self._exchange
        assert session is not None and answered is not None
        session.answer(answered, action)
        self._num_answers += 1
        before, info = answered.conversation, _counts(action)
        num_seen = len(before.seen)
        exchange = await self._next()
        if exchange is None:
            reason = StopReason.ENV_DONE if action.tool_calls else StopReason.ANSWERED
            return Observation(stop=StopReason.AGENT_FAILED if self._failure else reason, info=info)
        if exchange.conversation is before:
            return Observation(exchange.asked.messages[num_seen:], info=info)
        return Observation(session.added(before, exchange.asked), info=info, new_row=self._new_row)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the score of the agent's result; outcome 0 if the agent failed or did not end."""
        await self._end(grace_s=0.0 if self._failure else self._grace_s)
        assert self._running is not None
        has_ended = self._running.done() and not self._running.cancelled() and self._running.exception() is None
        if self._score is None:
            return UNSCORED
        if not has_ended or self._failure:
            return Reward(0.0, details={"agent_error": self._failure or "it did not end"})
        scored = self._score(self._row, self._running.result(), transcript)
        scored = await scored if inspect.isawaitable(scored) else scored
        return scored if isinstance(scored, Reward) else Reward(float(scored))

    async def close(self) -> None:
        """Ends the agent and its session."""
        try:
            await self._end(grace_s=0.0)
        finally:
            await self._stack.aclose()

    async def _next(self) -> Exchange | None:
        """Waits for the agent's next request; returns None when the agent has ended."""
        session, running = self._session, self._running
        assert session is not None and running is not None
        asked = asyncio.ensure_future(session.requests.get())
        try:
            await asyncio.wait(
                {asked, running, session.failure},
                timeout=self._agent_timeout_s if self._num_answers else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if not asked.done():
                asked.cancel()
        if session.failure.done():
            session.failure.result()  # raises: a side conversation failed
        if running.done():
            self._check_end(running, session)
            return None
        if not asked.done() or asked.cancelled():
            self._fail(f"it neither asked nor ended within {self._agent_timeout_s:g} s", None)
            return None
        exchange = self._exchange = asked.result()
        if exchange.is_first:
            self._new_row = session.new_row(exchange.asked)
        exchange.conversation.seen, exchange.conversation.tools = list(exchange.asked.messages), exchange.asked.tools
        return exchange

    def _check_end(self, running: asyncio.Future[Any], session: AgentSession) -> None:
        if running.cancelled():
            self._fail("it was cancelled", None)
        elif (cause := running.exception()) is not None:
            refused = f"; refused requests: {session.refusals}" if session.refusals else ""
            self._fail(f"{type(cause).__name__}: {cause}{refused}", cause)

    def _fail(self, reason: str, cause: BaseException | None) -> None:
        """Records that the agent failed.

        Raises:
            EnvError: the policy cannot be the cause, or failures of agents count as infrastructure.
        """
        is_env = not self._num_answers or self._on_failure == "void" or (cause is not None and is_infrastructure(cause))
        if is_env:
            raise EnvError(f"the agent failed, got {reason}") from cause
        self._failure = reason
        known = reason[:_KEY_CHARS]
        if known not in _logged and len(_logged) < _MAX_LOGGED:
            _logged.add(known)
            logger.warning("an agent failed after %d turns, and scores 0: %s", self._num_answers, reason)

    async def _end(self, *, grace_s: float) -> None:
        """Refuses requests, and ends the agent if it does not end by itself."""
        session, running = self._session, self._running
        if session is None or running is None:
            return
        await session.end("the episode is over: a budget of the trainer is used up, or it was ended")
        if not running.done():
            await asyncio.wait([running], timeout=grace_s)
        if not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=_CANCEL_S)
        if running.done() and not running.cancelled():
            running.exception()  # retrieved: asyncio would print it


def _counts(action: Action) -> dict[str, float]:
    kinds = Counter(f"call_error/{call.error_kind}" for call in action.tool_calls if call.error_kind is not None)
    return {"tool_calls": float(len(action.tool_calls)), "tool_errors": float(kinds.total()), **kinds}
