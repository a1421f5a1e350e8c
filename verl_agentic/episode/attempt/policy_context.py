"""The context of the policy: messages are cut to their limits, rendered to tokens, and appended to the current row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from verl_agentic.base.errors import DataError, EnvError, boundary
from verl_agentic.base.types import Message, SegmentKind
from verl_agentic.episode.attempt.turn_budgets import AttemptBudgets
from verl_agentic.episode.attempt.turn_end import Stopped
from verl_agentic.episode.codec.clipping import CHARS_PER_TOKEN, clip, encodable
from verl_agentic.episode.codec.codec import ContextTokens, Schema
from verl_agentic.episode.codec.threads import offload_if_long


@dataclass(kw_only=True)
class AttemptContext(AttemptBudgets):
    """Appends messages to the current row, within the budgets."""

    @property
    def _callable_tools(self) -> Sequence[Schema]:
        return self._tools if self._announced is None else self._announced

    async def _encode_clipped(self, messages: Sequence[Message]) -> tuple[list[Message], ContextTokens]:
        """Returns the messages cut to their limits, and their tokens.

        Messages that are short together are not counted one by one.
        """
        limits = self.setup.limits
        cap = min(limits.max_observation_tokens or limits.max_context_tokens, limits.max_context_tokens)
        new = [_make_encodable(message) for message in messages]
        if any(len(message.content) > CHARS_PER_TOKEN * cap for message in new):
            new = await self._clip_messages(new)
            return new, await self._encode_messages(new)
        edit = await self._encode_messages(new)
        if edit.growth > cap and (clipped := await self._clip_messages(new)) != new:
            new, edit = clipped, await self._encode_messages(clipped)
        return new, edit

    async def _encode_messages(self, new: Sequence[Message]) -> ContextTokens:
        """Returns the tokens of new messages. A failure depends on what the policy wrote, so it is the policy's."""
        with boundary(DataError, "rendering an observation"):
            return await self.setup.codec.encode_context(
                self._context, new, stream=self.trajectory.token_ids, tools=self._tools
            )

    def _append_messages(self, new: Sequence[Message], edit: ContextTokens) -> None:
        self.messages.extend(new)
        room, reason = self._compute_room(edit.growth)
        if room < 1:
            raise Stopped(reason)
        self.info["neutralised_markers"] += edit.neutralised
        self._context.extend(new)
        self.trajectory.drop_tail(edit.removed)
        kind = SegmentKind.TOOL if any(message.role == "tool" for message in new) else SegmentKind.USER
        self.trajectory.append_context(edit.token_ids, turn=self.actions[-1].turn, kind=kind)

    async def _clip_messages(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> list[Message]:
        """Returns the messages, each cut to the limit of a message and to the size of a row."""
        limits, clipped = self.setup.limits, []
        caps = (max_tokens, limits.max_observation_tokens, limits.max_context_tokens)
        for message in messages:
            with boundary(EnvError, "clipping an observation"):
                text, is_cut = await offload_if_long(
                    len(message.content),
                    clip,
                    message.content,
                    max_tokens=min(cap for cap in caps if cap is not None),
                    keep=limits.observation_keep,
                    tokenizer=self.setup.tokenizer,
                )
            self.info["clipped_observations"] += is_cut
            clipped.append(replace(message, content=text))
        return clipped

    async def _fit_messages(self, new: Sequence[Message], *, reserve: int) -> list[Message]:
        """Returns the messages, cut to preserve the reserve."""
        fitting, spare = list(new), self._row_room()[0] - reserve
        for attempt in range(3):
            lacking = reserve - self._row_room((await self._encode_messages(fitting)).growth)[0]
            if lacking <= 0 or attempt == 2:
                break
            spare -= lacking if attempt else 0  # the template around the texts
            fitting = await self._clip_messages(new, max_tokens=max(0, spare) // len(new))
        return fitting


def _make_encodable(message: Message) -> Message:
    content = encodable(message.content)
    return message if content == message.content else replace(message, content=content)
