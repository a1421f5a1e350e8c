"""Attempts inside an attempt: the conversations of an agent program, one of which is its own, and sub-agents."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.base.env import SUB_AGENT, EnvRow
from verl_agentic.base.errors import DataError, EnvError, boundary
from verl_agentic.base.tools.delegate import NoAnswerError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import VOID_REASONS, Action, Message, Observation, StopReason, Tool, TurnLimits
from verl_agentic.episode.attempt.attempt import Attempt
from verl_agentic.episode.attempt.call_choice import make_constraint
from verl_agentic.episode.attempt.episode_setup import Exploration
from verl_agentic.episode.attempt.turn_end import WITHOUT_ANSWER, Stopped
from verl_agentic.episode.trace import timeline
from verl_agentic.episode.trace.tool_spans import StepWatch

_ADOPTED = (
    *("rows", "trajectory", "messages", "actions", "prompt", "generate_s", "min_weights_version"),
    *("max_weights_version", "error"),
)


async def play_agent(attempt: Attempt, env: Any) -> StopReason:
    """Plays an episode whose environment plays conversations itself (`env.Env`); returns the stop reason.

    The record of the agent's own conversation becomes that of the attempt. The others are sub-agents.
    """
    await attempt.start_env(env)
    attempt.messages = list(attempt.prompt)
    agent_time = _AgentTime(attempt)
    try:
        with boundary(EnvError, "playing the agent"):
            stop = await env.play_conversations(lambda: _open_conversation(attempt, agent_time))
    except EnvError:
        void = next((conversation for conversation in attempt.conversations if conversation.stop in VOID_REASONS), None)
        if void is None or void.stop is None:
            raise
        attempt.error = void.error
        return void.stop
    finally:
        agent_time.end()
        own_conversation = env.own_conversation()
        _adopt_record(attempt, own_conversation.attempt if isinstance(own_conversation, ConversationAttempt) else None)
    return stop


def _open_conversation(parent: Attempt, agent_time: _AgentTime) -> ConversationAttempt:
    number = len(parent.conversations)
    child = Attempt(
        setup=parent.setup,
        row=parent.row,
        request_id=f"{parent.request_id}-conversation{number}",
        guidance=parent.guidance,
        agent=SUB_AGENT,
        label=f"conversation {number}",
        parent=parent,
    )
    parent.conversations.append(child)
    return ConversationAttempt(parent, child, agent_time)


def _adopt_record(parent: Attempt, child: Attempt | None) -> None:
    """Makes the record of a conversation that of the attempt."""
    labels = {conversation.label: timeline.SUB_AGENT for conversation in parent.conversations}
    if child is not None:
        labels[child.label] = ""
        parent.conversations.remove(child)
        parent.info.pop("tools_offered", None)  # those of the first request
        for name in _ADOPTED:
            setattr(parent, name, getattr(child, name))
        parent.info.update(child.info)
        parent.info.update(_count_calls(child.actions))
        if child.constraint is None:
            make_constraint(parent.setup.constraint, child.tool_names)  # raises: it names other tools
    for conversation in parent.conversations:
        conversation.info.pop("tools_offered", None)
    parent.info["sub_agents"] += sum(bool(conversation.actions) for conversation in parent.conversations)
    if (recorded := timeline.current()) is not None:
        recorded.relabel(labels)


def _count_calls(actions: list[Action]) -> Counter[str]:
    calls = [call for action in actions for call in action.tool_calls]
    kinds = Counter(f"call_error/{call.error_kind}" for call in calls if call.error_kind is not None)
    return Counter({"tool_calls": len(calls), "tool_errors": kinds.total(), **kinds})


class _AgentTime:
    """The time in which no conversation waits for the policy: the agent's, as a span `step` of the last turn."""

    def __init__(self, parent: Attempt) -> None:
        self._parent = parent
        self._num_waiting = 0
        self._watch: StepWatch | None = None
        self._span: timeline.OpenSpan | None = None
        self._started = time.monotonic()
        self._last: Attempt | None = None

    def asks(self, child: Attempt, observation: Observation) -> None:
        """Notes that a conversation waits for the policy."""
        self._num_waiting += 1
        if self._num_waiting == 1:
            self.end(observation if child is self._last else None)

    def answers(self, child: Attempt) -> None:
        """Notes that a conversation does not wait any more."""
        self._num_waiting -= 1
        recorded = timeline.current()
        if self._num_waiting or not child.actions:
            return
        self._last, self._started = child, time.monotonic()
        action = child.actions[-1]
        self._watch = StepWatch(action, tool_names=child.tool_names, turn=action.turn)
        if recorded is not None:
            self._span = recorded.begin("step", label=self._watch.label, turn=action.turn, parent=None)
        self._watch.begin()

    def end(self, observation: Observation | None = None) -> None:
        """Ends the agent's time: a conversation asks, or the agent has ended."""
        if self._watch is None:
            return
        self._watch.end()
        self._parent.env_s += time.monotonic() - self._started
        recorded = timeline.current()
        if recorded is not None and self._span is not None:
            recorded.end(self._span)
        if observation is not None:
            self._watch.answered(observation)
        self._watch = self._span = None


class ConversationAttempt:
    """A conversation of an agent: an attempt whose observations are given one by one (`env.AgentConversation`)."""

    def __init__(self, parent: Attempt, child: Attempt, agent_time: _AgentTime) -> None:
        self._parent, self.attempt, self._agent_time = parent, child, agent_time

    @property
    def stop(self) -> StopReason | None:
        """Why the conversation is over; None while it is not."""
        return self.attempt.stop

    async def answer(self, observation: Observation, *, limits: TurnLimits) -> Action:
        """Samples a turn; see `env.AgentConversation`."""
        parent, child, before = self._parent, self.attempt, self.attempt.num_sampled
        budgets = parent.setup.limits
        if budgets.max_episode_tokens is not None:
            num_left = budgets.max_episode_tokens - parent.num_sampled
            budgets = replace(budgets, max_episode_tokens=max(1, num_left + before))
        child.setup = replace(child.setup, limits=budgets)
        self._agent_time.asks(child, observation)
        try:
            return await child.converse(observation, limits=limits)
        except Stopped as stop:
            child.stop, child.error = stop.reason, stop.error
            if stop.reason not in WITHOUT_ANSWER:
                raise EnvError(f"a conversation failed, got {stop.reason.value}: {stop.error}") from stop
            raise NoAnswerError(f"the conversation is over: {WITHOUT_ANSWER[stop.reason]}") from stop
        except DataError as cause:
            if child.actions:  # what the policy wrote cannot be rendered
                child.stop, child.error = StopReason.POLICY_FAULT, f"{type(cause).__name__}: {cause}"
            raise
        finally:
            parent.num_sampled += child.num_sampled - before
            self._agent_time.answers(child)


async def run_sub_agent(
    parent: Attempt,
    prompt: Sequence[Message],
    *,
    tools: Sequence[Tool],
    max_turns: int,
    max_calls: int | None = None,
    is_trained: bool = True,
    agent: str = SUB_AGENT,
) -> str:
    """Runs a sub-agent to its end; see `base.env.SubAgentRunner`."""
    parent.info["sub_agents"] += 1
    limits = parent.setup.limits
    limits = replace(limits, max_turns=max_turns, max_calls_per_turn=max_calls or limits.max_calls_per_turn)
    if limits.max_episode_tokens is not None:
        limits = replace(limits, max_episode_tokens=max(1, limits.max_episode_tokens - parent.num_sampled))
    row = EnvRow(prompt=tuple(prompt))
    helper = Attempt(
        setup=replace(parent.setup, limits=limits, exploration=Exploration(), instruction="", constraint=""),
        row=row,
        request_id=f"{parent.request_id}-sub{int(parent.info['sub_agents'])}",
        agent=agent,
        label=timeline.SUB_AGENT,
    )
    try:
        stop = await helper.run(ToolEnv(row, tools))
    finally:
        parent.num_sampled += helper.num_sampled
    if stop in VOID_REASONS:
        raise EnvError(f"a sub-agent could not be played to its end, got {stop.value}: {helper.error}")
    if is_trained:
        parent.side_rows += helper.finish(is_void=False, filler_id=0)
    for name, count in helper.info.items():
        parent.info[name] += count
    answer = helper.transcript(stop).final_answer
    if stop in WITHOUT_ANSWER or not answer.strip():
        raise NoAnswerError(f"{WITHOUT_ANSWER.get(stop, 'it said nothing')}; ask for less, or ask again")
    return answer
