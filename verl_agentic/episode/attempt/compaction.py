"""Compaction of a full context: the conversation is shortened and continues in a new training row.

Every row is trained with the context that the engine saw. The shortened conversation is the prompt of the next row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import Message
from verl_agentic.episode.codec.clipping import encodable

DROPPED = "[This result was removed.]"
REMOVED = "[An old observation was removed here to save room.]"
SUMMARY_REQUEST = (
    "The conversation has become too long and will be cut. Write a summary of what you have found out and done, and "
    "what is left to do. You will go on with nothing but the task and this summary."
)
SUMMARY_HEADER = "Your summary of what happened so far:"
UNSEEN_HEADER = "What came back after that:"


class Compaction(Settings):
    """Settings for shortening a conversation that is too long."""

    strategy: Literal["drop_observations", "summary"]
    """`drop_observations` replaces old observations by a note. `summary` asks the policy for a summary, in a turn that
    is trained, and continues with task and summary."""
    keep_last: int = setting(2, min=0)
    """Number of latest observations that stay (`drop_observations`)."""
    min_room_tokens: int = setting(256, min=1)
    """The conversation is shortened when an observation leaves the row fewer tokens than this, plus a summary's."""
    max_summary_tokens: int = setting(512, min=1)
    """Maximum number of tokens of a summary."""
    max_rows: int = setting(8, min=1)
    """Maximum number of training rows of an episode. The last row continues until it is full."""

    @property
    def needed_tokens(self) -> int:
        """Minimum room of a row before compaction."""
        return self.min_room_tokens + (self.max_summary_tokens if self.strategy == "summary" else 0)


def drop_observations(messages: Sequence[Message], *, after: int, keep_last: int) -> list[Message]:
    """Replaces all but the last observations by a note; keeps the first `after` messages, the prompt."""
    observed = [index for index, m in enumerate(messages) if index >= after and m.role in ("tool", "user")]
    old = set(observed[: max(0, len(observed) - keep_last)])
    return _with_notes(messages, old, note=REMOVED, after=after)


def drop_calls(messages: Sequence[Message], *, after: int, call_ids: Collection[str]) -> list[Message]:
    """Replaces the answers of some calls by a note; keeps the first `after` messages, the prompt."""
    dropped = {
        index for index, m in enumerate(messages) if index >= after and m.role == "tool" and m.call_id in call_ids
    }
    return _with_notes(messages, dropped, note=DROPPED, after=after)


def _with_notes(messages: Sequence[Message], places: Collection[int], *, note: str, after: int) -> list[Message]:
    """Returns the messages with a note at some places; text of the environment is quoted, as it becomes a prompt."""
    return [
        replace(m, content=note, quoted="")
        if index in places
        else replace(m, quoted=m.content)
        if index >= after and m.role == "user"
        else m
        for index, m in enumerate(messages)
    ]


def with_summary(prompt: Sequence[Message], summary: str, *, unseen: Sequence[Message]) -> list[Message]:
    """Returns the prompt with a summary and the observations that did not fit."""
    parts = [SUMMARY_HEADER, summary]
    if unseen:
        parts += ["", UNSEEN_HEADER, *(message.content for message in unseen)]
    return with_note(prompt, "\n".join(parts))


def with_note(prompt: Sequence[Message], note: str) -> list[Message]:
    """Appends a note to the last message of the prompt, because templates may require alternating roles."""
    *before, last = prompt
    note = encodable(f"\n\n{note}")
    return [*before, replace(last, content=last.content + note, quoted=last.quoted + note)]
