"""Conversations of one agent, and the rules by which requests and conversations belong together.

Messages of the system are no evidence: programs change them between requests (times, hashes, lists of files), and
several conversations may have the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.env import AgentConversation
from verl_agentic.base.types import Action, Message
from verl_agentic.bridges.harness.dialects.wire import (
    ChatAnswer,
    ChatAsked,
    Schema,
    is_same,
    num_shared,
    split_thoughts,
    turn_key,
)

_PROBE_TOKENS = 1
"""Limit of a request that only counts tokens, or tests whether the model answers."""
_MIN_QUOTE_CHARS = 16
"""Length from which a turn that stands in another text is a quotation."""
_NUMBERS = re.compile(r"\S*\d\S*")
_MIN_TASK_WORDS = 4
"""Number of words from which an argument of a call is a task wherever it stands in a message."""


@dataclass(eq=False, kw_only=True)
class Branch:
    """A history that the policy has seen: one training row."""

    tools: tuple[Schema, ...]
    seen: list[Message]
    """The last request, and the answer to it."""
    turns: set[int] = field(default_factory=set)
    """Places of the policy's turns in `seen`, messages of the system not counted. Other turns are examples."""
    actions: dict[int, Action] = field(default_factory=dict)
    """Place in `seen` -> the turn that wrote it."""

    @classmethod
    def of(cls, request: ChatAsked, *, origin: Branch | None) -> Branch:
        """Returns the branch of a request that begins like another one."""
        turns = (
            {place for place in origin.turns if place < origin.num_repeated(request)} if origin is not None else set()
        )
        return cls(tools=request.tools, seen=list(request.messages), turns=turns)

    def num_repeated(self, request: ChatAsked) -> int:
        """Returns the number of messages, without those of the system, with which a request repeats this history."""
        return num_shared(_drop_instructions(self.seen), _drop_instructions(request.messages))

    def is_continued_by(self, request: ChatAsked) -> bool:
        """Returns whether a request only adds messages, so that the row goes on."""
        is_longer = len(request.messages) > len(self.seen) == num_shared(self.seen, request.messages)
        return is_longer and self.tools == request.tools


@dataclass(eq=False, kw_only=True)
class Conversation:
    """Histories that are one conversation: the first one, and its rewritten forms."""

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
    num_answers_before: int = 0
    """Number of answers in the session when it began."""
    has_tools: bool = False
    is_busy: bool = False
    """Whether a request waits for its answer."""
    turn_keys: set[str] = field(default_factory=set)
    arguments: dict[str, int] = field(default_factory=dict)
    """Text in an argument of a call -> number of the answer with the call."""

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
        branch.turns.add(len(_drop_instructions(branch.seen)))
        branch.seen.append(answer.message)
        for text in (text for call in action.tool_calls for text in _texts_of(call.arguments)):
            self.arguments.setdefault(text, number)
        if key := turn_key(answer.message):
            self.turn_keys.add(key)
        self.has_tools = self.has_tools or bool(branch.tools)
        self.num_turns += 1
        self.last_answer, self.is_busy = number, False

    @property
    def last_text(self) -> str:
        """The text of its last turn, without thoughts."""
        return split_thoughts(self.last_action.content)[1] if self.last_answer else ""

    def is_quoted_in(self, request: ChatAsked) -> bool:
        """Returns whether a request has the text of the last turn, such as a summary."""
        text = self.last_text
        return len(text) >= _MIN_QUOTE_CHARS and any(text in message.content for message in request.messages)

    def has_called(self, other: Conversation) -> bool:
        """Returns whether the task of another conversation stands in a call that was made before it began."""
        texts = [text for text, number in self.arguments.items() if number <= other.num_answers_before]
        return any(_ends_with(other.task, text) or _has_lines(other.task, text) for text in texts)

    def calls_with(self, task: str) -> bool:
        """Returns whether an argument of one of its calls is a task, or its last lines."""
        return any(_ends_with(task, text) for text in self.arguments)


def is_probe(request: ChatAsked) -> bool:
    """Returns whether a request asks for a single token."""
    return request.limits.max_tokens is not None and request.limits.max_tokens <= _PROBE_TOKENS


def task_of(request: ChatAsked) -> str:
    """Returns the first message of the user."""
    return next((message.content.strip() for message in request.messages if message.role == "user"), "")


def find_continued(request: ChatAsked, conversations: Sequence[Conversation]) -> tuple[Conversation, Branch] | None:
    """Returns the conversation and the history that a request continues or rewrites, by the turns of the policy in it.

    A request with another message of the system and without the tools of the conversation belongs to another role,
    such as one that writes a title or a summary.
    """
    repeating = [
        (branch.num_repeated(request), conversation, branch)
        for conversation in conversations
        if not conversation.is_probe
        for branch in conversation.branches
        if not _has_lost_tools(conversation, branch, request)
    ]

    def rank_branch(place: tuple[int, Conversation, Branch]) -> tuple[Any, ...]:
        shared, conversation, branch = place
        num_turns, is_whole = (
            sum(turn < shared for turn in branch.turns),
            shared == len(_drop_instructions(branch.seen)),
        )
        is_continued, is_idle = branch.is_continued_by(request), not conversation.is_busy
        return num_turns, is_continued, is_idle, is_whole, shared, conversation.last_answer

    # Of equal ones, the last: it begins with turns of the others.
    places = [place for place in reversed(repeating) if any(turn < place[0] for turn in place[2].turns)]
    return max(places, key=rank_branch)[1:] if places else _find_by_turns(request, conversations)


def _find_by_turns(request: ChatAsked, conversations: Iterable[Conversation]) -> tuple[Conversation, Branch] | None:
    """Returns the conversation with most turns of a request, whose beginning has changed."""
    keys = {turn_key(message) for message in request.messages if message.role == "assistant"} - {""}

    def rank(conversation: Conversation) -> tuple[int, bool, int]:
        has_same_system = _read_instructions(conversation.branch.seen) == _read_instructions(request.messages)
        return len(keys & conversation.turn_keys), has_same_system, conversation.last_answer

    sharing = [
        candidate
        for candidate in conversations
        if keys & candidate.turn_keys and not candidate.is_probe and _is_same_role(candidate, request)
    ]
    return (conversation := max(sharing, key=rank), conversation.branch) if sharing else None


def find_restarted(
    request: ChatAsked, conversations: Sequence[Conversation], *, find_own: Callable[[], Conversation | None]
) -> Conversation | None:
    """Returns the conversation that a request begins anew, if it repeats no turn of the policy.

    It has the same messages of the system and the same task. In the agent's own conversation (`find_own`), the task may
    differ: the agent has summed up what happened, or never keeps a history. In any conversation with tools, the request
    may quote a summary. A task that stands in a call is a sub-agent's.
    """
    task, instructions = task_of(request), _read_instructions(request.messages)
    idle = [candidate for candidate in reversed(conversations) if not candidate.is_probe and not candidate.is_busy]
    for conversation in idle:
        tools, has_same_system = conversation.branch.tools, _read_instructions(conversation.branch.seen) == instructions
        if has_same_system and conversation.task == task and bool(tools) == bool(request.tools):
            return conversation
    if any(conversation.calls_with(task) for conversation in conversations):
        return None
    has_summary, current = (
        bool(request.tools) and any(candidate.is_quoted_in(request) for candidate in conversations),
        find_own(),
    )
    continued = [
        candidate
        for candidate in idle
        if candidate.branch.tools == request.tools
        and (
            (has_summary and _are_alike(candidate.branch.seen, request.messages))
            or (candidate is current and _may_change_task(candidate, instructions, task))
        )
    ]
    return max(continued, key=lambda candidate: candidate.last_answer, default=None)


def _may_change_task(conversation: Conversation, instructions: Sequence[str], task: str) -> bool:
    keeps_history = any(len(branch.actions) > 1 for branch in conversation.branches)
    previous_instructions = _read_instructions(conversation.branch.seen)
    if previous_instructions != instructions:  # agents with the same task may differ by a number: "You are agent 2."
        return (
            not keeps_history
            and conversation.task != task
            and _hide_numbers(previous_instructions) == _hide_numbers(instructions)
        )
    return not keeps_history or bool(instructions and conversation.branch.tools)


def _hide_numbers(texts: Iterable[str]) -> list[str]:
    """Returns texts without the words that have digits: times, counters, hashes."""
    return [_NUMBERS.sub("0", text) for text in texts]


def choose_own(
    conversations: Iterable[Conversation], *, pattern: re.Pattern[str] | None, result: str | None
) -> Conversation | None:
    """Returns the agent's own conversation: the one with tools and most turns that no other one has called.

    In this order: it fits the pattern; it is no probe; no call of another conversation has its task as an argument; it
    has tools; it has most turns; its last turn stands in the agent's result; its messages of the system are longest; it
    was answered last. None of these but the last one depends on which of two requests came first.

    Args:
        pattern: see `own_pattern` of the environment.
        result: what the agent returned; None while the episode runs. Then the first one counts, not the last.
    """
    answered = [
        conversation
        for conversation in conversations
        if conversation.last_answer or (conversation.side is not None and conversation.side.stop is not None)
    ]

    def rank(conversation: Conversation) -> tuple[Any, ...]:
        instructions = _read_instructions(conversation.branches[0].seen)
        is_called = any(other is not conversation and other.has_called(conversation) for other in answered)
        text, ended = conversation.last_text, result is not None
        return (
            pattern is not None and any(map(pattern.search, [*instructions, conversation.task])),
            not conversation.is_probe,
            not is_called,
            conversation.has_tools,
            conversation.num_turns,
            ended and bool(text) and text in str(result),
            sum(map(len, instructions)) if ended else 0,
            conversation.last_answer if ended else 0,
        )

    return max(answered, key=rank, default=None)


def with_turns_of(request: ChatAsked, branch: Branch) -> tuple[Message, ...]:
    """Returns the messages of a request, in which turns of a branch are as they were sampled, thoughts included."""
    turns = iter(_drop_instructions(branch.seen))
    messages, is_shared = [], True
    for message in request.messages:
        turn = next(turns, None) if is_shared and message.role != "system" else None
        is_shared = is_shared and (message.role == "system" or (turn is not None and is_same(turn, message)))
        messages.append(turn if is_shared and turn is not None and message.role == "assistant" else message)
    return tuple(messages)


def _drop_instructions(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.role != "system"]


def _read_instructions(messages: Iterable[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "system"]


def _has_lost_tools(conversation: Conversation, branch: Branch, request: ChatAsked) -> bool:
    return conversation.has_tools and not request.tools and not _are_alike(branch.seen, request.messages)


def _is_same_role(conversation: Conversation, request: ChatAsked) -> bool:
    branch = conversation.branch
    has_same_tools = branch.tools == request.tools and not _has_lost_tools(conversation, branch, request)
    return has_same_tools or _are_alike(branch.seen, request.messages)


def _are_alike(history: Iterable[Message], messages: Iterable[Message]) -> bool:
    """Returns whether messages of the system begin and end alike for half of their length: only a part has changed."""
    texts = ["\n".join(_read_instructions(part)) for part in (history, messages)]
    begin = _num_equal(*texts)
    end = _num_equal(*(text[begin:][::-1] for text in texts))
    return 2 * (begin + end) >= max(map(len, texts))


def _num_equal(text: str, other: str) -> int:
    """Returns the number of characters with which both texts begin."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((place for place, pair in pairs if pair[0] != pair[1]), min(len(text), len(other)))


def _ends_with(task: str, text: str) -> bool:
    """Returns whether a task ends with a text that is a paragraph of it, however servers join paragraphs."""
    if not text or not task.endswith(text):
        return False
    before = task[: -len(text)][-1:]
    return before in ("", "\n") or (before == " " and len(text.split()) >= _MIN_TASK_WORDS)


def _has_lines(task: str, text: str) -> bool:
    """Returns whether a text with several words stands in lines of its own."""
    return text in task and f"\n{text}\n" in f"\n{task}\n" and len(text.split()) >= _MIN_TASK_WORDS


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
