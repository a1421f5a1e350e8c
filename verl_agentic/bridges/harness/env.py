"""An agent program as an environment: its requests are the prompt and the observations."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from verl_agentic.base.env import AgentConversation, EnvRow, Transcript
from verl_agentic.base.errors import EnvError, is_infrastructure
from verl_agentic.base.places.error_places import describe_cause
from verl_agentic.base.types import UNSCORED, Action, Message, Observation, Reward, StopReason
from verl_agentic.bridges.harness.agent import Agent, PolicyEndpoint, visible_row
from verl_agentic.bridges.harness.container_agent import ContainerAgent
from verl_agentic.bridges.harness.dialects.wire import Schema, SessionOptions
from verl_agentic.bridges.harness.gateway import Place, gateway_servers
from verl_agentic.bridges.harness.session import AgentSession, CountTokens, OpenConversation

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

    `start` launches the agent and returns the messages of its first request. `play_conversations` answers all requests,
    in one conversation of the policy for each of the agent's, until the agent or a budget ends the episode.
    """

    def __init__(
        self,
        row: EnvRow,
        *,
        agent: Agent,
        score: Score | None,
        place: Place,
        options: SessionOptions,
        extra_keys: Collection[str],
        on_failure: OnFailure,
        agent_timeout_s: float,
        grace_s: float,
        max_sides: int,
        own_pattern: str,
    ) -> None:
        self._row, self._agent, self._score = row, agent, score
        self._visible_row = visible_row(row, extra_keys)
        self._place, self._options, self._on_failure = place, options, on_failure
        self._agent_timeout_s, self._grace_s, self._max_sides = agent_timeout_s, grace_s, max_sides
        self._own_pattern = re.compile(own_pattern) if own_pattern else None
        self._count_tokens: CountTokens | None = None
        self._stack = AsyncExitStack()
        self._session: AgentSession | None = None
        self._running: asyncio.Future[Any] | None = None
        self._failure = ""
        """Why the agent failed; empty if it did not."""

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tools of the first request."""
        first = None if self._session is None else self._session.first
        return () if first is None else tuple(map(AgentTool, first.asked.tools))

    def use_token_counts(self, count: CountTokens) -> None:
        """Sets the function that counts the tokens of a request."""
        self._count_tokens = count

    async def start(self) -> tuple[Message, ...]:
        """Launches the agent and returns the messages of its first request."""
        place = self._place
        if not place.host:
            place = replace(place, host=await self._agent.host() if isinstance(self._agent, ContainerAgent) else _HERE)
        server = await self._stack.enter_async_context(gateway_servers.lend(place))
        gateway = server.gateway
        session = self._session = AgentSession(
            max_sides=self._max_sides,
            own_pattern=self._own_pattern,
            trusted=tuple(self._row.prompt),
            count=self._count_tokens,
        )
        key = gateway.open(session, options=self._options)
        self._stack.callback(gateway.close, key)
        endpoint = PolicyEndpoint(url=f"{gateway.url}/{key}", api_key=key)
        self._running = asyncio.ensure_future(self._agent(self._visible_row, endpoint))
        while session.first is None:
            await self._wait_for_event(session, self._running, timeout_s=None)
            if self._running.done():
                self._check_end(self._running, session)
                raise EnvError(f"the agent ended without a request to the policy, got {self._running.result()!r:.300}")
        return session.first.asked.messages

    async def step(self, action: Action) -> Observation:
        """Raises EnvError: `play_conversations` plays the episode."""
        raise EnvError("an agent plays its conversations itself, got a single turn; use run_episode without a server")

    async def play_conversations(self, open_conversation: OpenConversation) -> StopReason:
        """Answers all requests of the agent until it ends, or its own conversation is over; returns the reason."""
        session, running = self._session, self._running
        assert session is not None and running is not None
        session.serve(open_conversation)
        try:
            await self._wait_for_end(session, running)
            if running.done() and not running.cancelled() and running.exception() is None:
                session.result = str(running.result())
        finally:
            await session.end("the episode is over: a budget of the trainer is used up, or it was ended")
        own_conversation = session.own
        if own_conversation is None or own_conversation.side is None:
            raise session.data_error or EnvError("the agent ended without a turn of the policy; see its requests")
        others = (conversation.num_turns for conversation in session.known if conversation is not own_conversation)
        if (longest := max(others, default=0)) > own_conversation.num_turns:
            logger.warning(
                "the agent's own conversation has %d turns, and a side conversation has %d; if that one is the agent's "
                "own, name it by agentic.env_config.own_pattern",
                own_conversation.num_turns,
                longest,
            )
        if own_conversation.side.stop is not None:
            return own_conversation.side.stop
        if self._failure:
            return StopReason.AGENT_FAILED
        return StopReason.ENV_DONE if own_conversation.last_action.tool_calls else StopReason.ANSWERED

    def own_conversation(self) -> AgentConversation | None:
        """Returns the agent's own conversation; None before its first turn."""
        conversation = None if self._session is None else self._session.own
        return None if conversation is None else conversation.side

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the score of the agent's result; outcome 0 if the agent failed or did not end."""
        await self._end_agent(grace_s=0.0 if self._failure else self._grace_s)
        assert self._running is not None
        has_ended = self._running.done() and not self._running.cancelled() and self._running.exception() is None
        if self._score is None:
            return UNSCORED
        if not has_ended or self._failure:
            return Reward(0.0, details={"agent_error": self._failure or self._describe_end(transcript.stop_reason)})
        scored = self._score(self._row, self._running.result(), transcript)
        scored = await scored if inspect.isawaitable(scored) else scored
        return scored if isinstance(scored, Reward) else Reward(float(scored))

    async def close(self) -> None:
        """Ends the agent and its session."""
        try:
            await self._end_agent(grace_s=0.0)
        finally:
            await self._stack.aclose()

    async def _wait_for_end(self, session: AgentSession, running: asyncio.Future[Any]) -> None:
        """Waits until the agent has ended, or its own conversation is over."""
        while not (session.stops and session.own_stop is not None):
            is_idle = bool(session.num_answers) and not session.is_waiting
            has_news = await self._wait_for_event(
                session, running, timeout_s=self._agent_timeout_s if is_idle else None
            )
            if running.done():
                self._check_end(running, session)
                return
            if not has_news:
                self._record_failure(f"it neither asked nor ended within {self._agent_timeout_s:g} s", None)
                return

    async def _wait_for_event(
        self, session: AgentSession, running: asyncio.Future[Any], *, timeout_s: float | None
    ) -> bool:
        """Waits for the agent's end, a request or an answer. Returns False after the time.

        Raises:
            Exception: a conversation failed.
        """
        changed = asyncio.ensure_future(session.changed.wait())
        try:
            events = {changed, running, session.failure}
            done_events, _ = await asyncio.wait(events, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        session.changed.clear()
        if session.failure.done():
            session.failure.result()
        return bool(done_events)

    def _check_end(self, running: asyncio.Future[Any], session: AgentSession) -> None:
        if running.cancelled():
            self._record_failure("it was cancelled", None)
        elif (cause := running.exception()) is not None:
            if not session.num_answers and session.data_error is not None:
                raise session.data_error
            self._record_failure(f"{describe_cause(cause)}{_describe_causes(session)}", cause)

    def _record_failure(self, reason: str, cause: BaseException | None) -> None:
        """Records that the agent failed.

        Raises:
            EnvError: the policy cannot be the cause, or failures of agents count as infrastructure.
        """
        session = self._session
        num_answers = 0 if session is None else session.num_answers
        has_sampled = session is not None and bool(session.num_answers or session.stops)
        is_env = not has_sampled or self._on_failure == "void" or (cause is not None and is_infrastructure(cause))
        if is_env:
            raise EnvError(f"the agent failed, got {reason}") from cause
        self._failure = reason
        failure_key = reason[:_KEY_CHARS]
        if failure_key not in _logged and len(_logged) < _MAX_LOGGED:
            _logged.add(failure_key)
            logger.warning("an agent failed after %d turns, and scores 0: %s", num_answers, reason)

    def _describe_end(self, stop: StopReason) -> str:
        """Returns how the agent ended after a budget had ended the episode."""
        running = self._running
        assert running is not None
        if not running.done() or running.cancelled():
            return f"it did not end within {self._grace_s:g} s after a budget ({stop.value}) had ended the episode"
        cause = running.exception()
        assert cause is not None  # called for an agent that has failed
        return f"{describe_cause(cause)}; a budget ({stop.value}) had ended the episode"

    async def _end_agent(self, *, grace_s: float) -> None:
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


def _describe_causes(session: AgentSession) -> str:
    """Returns what this side did that may have made an agent fail."""
    causes = []
    if session.refusals:
        causes.append(f"refused requests: {session.refusals}")
    if session.last_cut is not None:
        causes.append(f"its last turn was cut at the {session.last_cut} tokens that its request allows")
    if session.stops:
        causes.append(f"budgets ended its conversations: {[stop.value for stop in session.stops]}")
    return "".join(f"; {cause}" for cause in causes)
