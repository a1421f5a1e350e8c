"""Conversations of one agent, and the rules by which requests and conversations belong together.

Messages of the system are no evidence: programs change them between requests (times, hashes, lists of files), and
several conversations may have the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.bridges.harness.wire import (
    ChatAnswer,
    ChatAsked,
    Schema,
    is_same,
    num_shared,
    split_thoughts,
    turn_key,
)
from verl_agentic.env import AgentConversation
from verl_agentic.types import Action, Message

_PROBE_TOKENS = 1
"""Limit of a request that only counts tokens, or tests whether the model answers."""


@dataclass(eq=False, kw_only=True)
class Branch:
    """A history that the policy has seen: one training row."""

    tools: tuple[Schema, ...]
    seen: list[Message]
    """The last request, and the answer to it."""
    actions: dict[int, Action] = field(default_factory=dict)
    """Place in `seen` -> the turn that wrote it."""

    def is_continued_by(self, asked: ChatAsked) -> bool:
        """Returns whether a request only adds messages, so that the row goes on."""
        is_longer = len(asked.messages) > len(self.seen) == num_shared(self.seen, asked.messages)
        return is_longer and self.tools == asked.tools


@dataclass(eq=False, kw_only=True)
class Conversation:
    """What belongs together: a history, and what it was rewritten to."""

    side: AgentConversation | None = None
    """The policy; None before its first turn."""
    task: str
    """The first message of the user."""
    is_probe: bool
    branches: list[Branch] = field(default_factory=list)
    num_turns: int = 0
    """Turns of the policy, those included that another conversation has sampled before it parted from this one."""
    last_answer: int = 0
    """Number of its last answer in the session."""
    has_tools: bool = False
    is_busy: bool = False
    """Whether a request waits for its answer."""
    turn_keys: set[str] = field(default_factory=set)

    @property
    def branch(self) -> Branch:
        """The last branch."""
        return self.branches[-1]

    @property
    def last_action(self) -> Action:
        """Its last turn."""
        branch = next(branch for branch in reversed(self.branches) if branch.actions)
        return branch.actions[max(branch.actions)]

    def add_turn(self, action: Action, answer: ChatAnswer, *, number: int) -> None:
        """Adds a turn of the policy, the answer with a number in the session."""
        branch = self.branch
        branch.actions[len(branch.seen)] = action
        branch.seen.append(answer.message)
        if key := turn_key(answer.message):
            self.turn_keys.add(key)
        self.has_tools = self.has_tools or bool(branch.tools)
        self.num_turns += 1
        self.last_answer, self.is_busy = number, False

    def is_quoted_in(self, asked: ChatAsked) -> bool:
        """Returns whether a request has the text of the last turn, such as a summary."""
        text = split_thoughts(self.last_action.content)[1] if self.last_answer else ""
        return bool(text) and any(text in message.content for message in asked.messages)

    def calls_with(self, task: str) -> bool:
        """Returns whether an argument of one of its calls is the task of another conversation, or its last lines."""
        turns = (action for branch in self.branches for action in branch.actions.values())
        texts = (text for turn in turns for call in turn.tool_calls for text in _texts_of(call.arguments))
        return any(text and task.endswith(text) and task[: -len(text)][-1:] in ("", "\n") for text in texts)


def is_probe(asked: ChatAsked) -> bool:
    """Returns whether a request asks for a single token."""
    return asked.limits.max_tokens is not None and asked.limits.max_tokens <= _PROBE_TOKENS


def task_of(asked: ChatAsked) -> str:
    """Returns the first message of the user."""
    return next((message.content.strip() for message in asked.messages if message.role == "user"), "")


def find_continued(asked: ChatAsked, known: Iterable[Conversation]) -> tuple[Conversation, Branch] | None:
    """Returns the conversation and the history that a request continues or rewrites, by the turns of the policy in it.

    A request with another message of the system and without the tools of the conversation belongs to another role,
    such as one that writes a title or a summary.
    """
    best: tuple[tuple[int, bool, bool, int], Conversation, Branch] | None = None
    for conversation in known:
        if conversation.is_probe:
            continue
        for branch in conversation.branches:
            if not _may_be_same_role(branch, asked):
                continue
            shared = num_shared(_body(branch.seen), _body(asked.messages))
            if not any(message.role == "assistant" for message in _body(asked.messages)[:shared]):
                continue
            rank = (shared, branch.is_continued_by(asked), not conversation.is_busy, conversation.last_answer)
            if best is None or rank >= best[0]:
                best = rank, conversation, branch
    if best is not None:
        return best[1], best[2]
    keys = {turn_key(message) for message in asked.messages if message.role == "assistant"} - {""}
    sharing = [
        (len(keys & conversation.turn_keys), conversation.last_answer, conversation)
        for conversation in known
        if keys & conversation.turn_keys and not conversation.is_probe and _is_same_role(conversation.branch, asked)
    ]
    return (conversation := max(sharing, key=lambda one: one[:2])[2], conversation.branch) if sharing else None


def find_restarted(
    asked: ChatAsked, known: Sequence[Conversation], *, own: Callable[[], Conversation | None]
) -> Conversation | None:
    """Returns the conversation that a request begins anew, if it repeats no turn of the policy.

    It has the same messages of the system and the same task. In the agent's own conversation (`own`), the task may
    differ: the agent has summed up what happened, or never keeps a history. A task that stands in a call is a
    sub-agent's.
    """
    task, instructions = task_of(asked), _instructions(asked.messages)
    for conversation in reversed(known):
        tools = conversation.branch.tools
        if conversation.is_probe or conversation.is_busy or _instructions(conversation.branch.seen) != instructions:
            continue
        if conversation.task == task and bool(tools) == bool(asked.tools):
            return conversation
        keeps_history = any(len(branch.actions) > 1 for branch in conversation.branches)
        has_sign = not keeps_history or (instructions and (tools or any(one.is_quoted_in(asked) for one in known)))
        if tools == asked.tools and has_sign and conversation is own() and not any(c.calls_with(task) for c in known):
            return conversation
    return None


def choose_own(
    known: Iterable[Conversation], *, pattern: re.Pattern[str] | None, has_ended: bool
) -> Conversation | None:
    """Returns the agent's own conversation: the one with tools and most turns that no other one has called.

    In this order: it fits the pattern; it is no probe; no call of another conversation has its task as an argument; it
    has tools; it has most turns; it was answered last. While the episode runs, the first one counts, not the last.
    """
    answered = [conversation for conversation in known if conversation.last_answer]

    def rank(conversation: Conversation) -> tuple[Any, ...]:
        first = [*_instructions(conversation.branches[0].seen), conversation.task]
        is_called = any(one is not conversation and one.calls_with(conversation.task) for one in answered)
        return (
            pattern is not None and any(map(pattern.search, first)),
            not conversation.is_probe,
            not is_called,
            conversation.has_tools,
            conversation.num_turns,
            conversation.last_answer if has_ended else 0,
        )

    return max(answered, key=rank, default=None)


def with_turns_of(asked: ChatAsked, branch: Branch) -> tuple[Message, ...]:
    """Returns the messages of a request, in which turns of a branch are as they were sampled, thoughts included."""
    turns = iter(_body(branch.seen))
    messages, is_shared = [], True
    for message in asked.messages:
        seen = next(turns, None) if is_shared and message.role != "system" else None
        is_shared = is_shared and (message.role == "system" or (seen is not None and is_same(seen, message)))
        messages.append(seen if is_shared and seen is not None and message.role == "assistant" else message)
    return tuple(messages)


def _body(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.role != "system"]


def _instructions(messages: Iterable[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "system"]


def _may_be_same_role(branch: Branch, asked: ChatAsked) -> bool:
    has_lost_tools = bool(branch.tools) and not asked.tools
    return not has_lost_tools or _instructions(branch.seen) == _instructions(asked.messages)


def _is_same_role(branch: Branch, asked: ChatAsked) -> bool:
    return branch.tools == asked.tools or _instructions(branch.seen) == _instructions(asked.messages)


def _texts_of(value: Any) -> Iterator[str]:
    """Yields the texts in a JSON value."""
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_of(item)
