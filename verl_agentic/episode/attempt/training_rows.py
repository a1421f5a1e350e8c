"""The training rows of an attempt: sampled tokens, and a conversation that continues in a new row."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import AgenticError, DataError, EnvError, PolicyError, boundary
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Message, NewRow, SegmentKind, StopReason
from verl_agentic.episode.attempt import boundary_checks, compaction
from verl_agentic.episode.attempt.attempt_record import AttemptRecord
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.policy_context import AttemptContext
from verl_agentic.episode.attempt.tool_changes import tool_name
from verl_agentic.episode.attempt.turn_end import Stopped, check_sampled, cut_at_stop
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.codec.threads import offload_if_long
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.trace import timeline

T = TypeVar("T")
_Attempts = Iterable[tuple[Sequence[Action], Sequence[Trajectory]]]
"""Turns and rows of each attempt of an episode."""


@dataclass(kw_only=True)
class AttemptRows(AttemptContext):
    """Samples tokens into the current row, and begins new rows."""

    def _list_related(self) -> Sequence[AttemptRecord]:
        """Returns the attempts whose tokens a new row may begin with."""
        return [self]

    async def begin_row(self, new: NewRow) -> None:
        """Continues in a new row with another conversation."""
        new = self._with_notes(new)
        self.trajectory = Trajectory(prompt_ids=[])
        self._tools, self._announced = list(new.tools), None
        self._offered, self.tool_names = self._tools, list(map(tool_name, new.tools))
        self.info["tools_offered"] = max(self.info["tools_offered"], len(self._tools))
        self._context = list(new.messages)
        with boundary(DataError, "rendering a conversation"):
            attempts = [(part.actions, (*part.rows, part.trajectory)) for part in self._list_related()]
            self.trajectory.prompt_ids = await _encode_row(new, self.setup.codec, attempts)
        room, reason = self._compute_room()
        if room < 1 and self.actions:
            raise Stopped(reason)

    def _with_notes(self, new: NewRow) -> NewRow:
        """Returns a row whose prompt has the instruction and the guidance, like that of an environment."""
        notes = [note for note in (self.setup.instruction, self.guidance) if note]
        index = next((index for index, m in enumerate(new.messages) if m.role == "assistant"), len(new.messages))
        prompt = list(new.messages[:index])
        for note in notes if prompt else ():
            prompt = compaction.with_note(prompt, note)
        return replace(new, messages=(*prompt, *new.messages[index:]))

    async def _shorten_context(self, how: Compaction, new: Sequence[Message]) -> bool:
        """Continues in a new row with a shorter conversation; returns False if it cannot."""
        if len(self.rows) + 1 >= how.max_rows:
            return False
        if how.strategy == "summary":
            context = await self._summarise_context(how, new)
        else:
            context = compaction.drop_observations(
                [*self._context, *new], after=len(self.prompt), keep_last=how.keep_last
            )
        has_room = await self._start_row(context, needed_tokens=how.needed_tokens)
        if not has_room and how.strategy == "summary":  # it has been sampled already
            raise Stopped(StopReason.CONTEXT_FULL)
        if has_room and how.strategy == "drop_observations":
            self.messages.extend(new)
        return has_room

    async def _drop_calls(self, call_ids: Sequence[str], new: Sequence[Message]) -> None:
        """Continues in a new row without the answers of some calls."""
        limits = self.setup.limits
        if limits.answer_reserve_tokens and len(self.actions) + 1 >= limits.max_turns:
            self._last_turn = StopReason.MAX_TURNS
            self.info["final_notices"] += 1
            num_left = min(limits.max_turn_tokens or limits.answer_reserve_tokens, limits.answer_reserve_tokens)
            new = [*new, Message("user", limits.final_notice.replace("{tokens}", str(num_left)))]
        self.messages.extend(new)
        context = compaction.drop_calls([*self._context, *new], after=len(self.prompt), call_ids=call_ids)
        if not await self._start_row(context, needed_tokens=1):
            raise Stopped(StopReason.CONTEXT_FULL)

    async def _start_row(self, context: list[Message], *, needed_tokens: int) -> bool:
        """Starts a row whose prompt is a conversation; returns False if it leaves too little room."""
        with boundary(DataError, "rendering a shortened conversation"):
            prompt_ids = await self.setup.codec.encode_prompt(context, self._callable_tools)
        if self.setup.limits.max_context_tokens - len(prompt_ids) < needed_tokens:
            return False
        self.rows.append(self.trajectory)
        self.trajectory = Trajectory(prompt_ids=prompt_ids)
        self._tools, self._announced = self._callable_tools, None
        self._context = context
        return True

    async def _summarise_context(self, how: Compaction, new: Sequence[Message]) -> list[Message]:
        """Lets the policy write a summary in a separate turn; returns the new conversation."""
        request = Message("user", compaction.SUMMARY_REQUEST)
        edit, unseen = await self._encode_messages([*new, request]), ()
        if self._row_room(edit.growth)[0] < how.max_summary_tokens:
            edit, unseen = await self._encode_messages([request]), tuple(new)
        self.messages.extend(unseen)
        self._append_messages([request] if unseen else [*new, request], edit)
        self._turn += 1
        completion = await self._sample_tokens(min(how.max_summary_tokens, self._compute_room()[0]))
        with boundary(EnvError, "parsing a summary"):
            action = await self.setup.codec.decode_action(
                completion.token_ids, turn=self._turn, tools=self._callable_tools
            )
        self.messages.append(action.to_message())
        self.info["summaries"] += 1
        return compaction.with_summary(self.prompt, action.content, unseen=unseen)

    async def _sample_tokens(self, max_tokens: int) -> Completion:
        started = time.monotonic()
        generating = self.setup.policy.generate(
            self.trajectory.token_ids, messages=self._context, max_tokens=max_tokens, request_id=self.request_id
        )
        with timeline.span("generate", label=self.label, turn=self._turn):
            completion = await self._limit_time(
                await_guarded(generating, PolicyError, "generating a turn"), "generating a turn"
            )
        self.generate_s += time.monotonic() - started
        check_sampled(completion)
        with boundary(PolicyError, "reading the policy's answer"):
            boundary_checks.check_completion(completion, max_tokens=max_tokens)
        self.num_sampled += len(completion.token_ids)
        with boundary(EnvError, "cutting a turn at a stop text"):
            completion = cut_at_stop(completion, self._turn_limits.stop_texts, tokenizer=self.setup.tokenizer)
        with boundary(EnvError, "finding what is not trained in a turn"):
            ids = completion.token_ids
            untrained = await offload_if_long(len(ids), self.setup.codec.untrained_spans, ids)
        self.trajectory.append_sampled(ids, completion.log_probs, turn=self._turn, untrained=untrained)
        if self.min_weights_version is None:
            self.min_weights_version = completion.min_weights_version
        self.max_weights_version = completion.max_weights_version
        return completion

    async def _limit_time(self, awaitable: Awaitable[T], label: str) -> T:
        try:
            return await within(awaitable, self.setup.limits.turn_timeout_s, what=label)
        except OverrunError as cause:
            raise Stopped(StopReason.POLICY_FAULT if cause.by_code else StopReason.TIMEOUT, str(cause)) from cause


async def await_guarded(awaitable: Awaitable[T], error: type[AgenticError], label: str) -> T:
    """Awaits the code of somebody else; its exceptions become `error`."""
    with boundary(error, label):
        return await awaitable


async def _encode_row(new: NewRow, codec: Codec, attempts: _Attempts) -> list[int]:
    """Returns the prompt of a new row. The tokens of `new.after` and of all before it are not encoded again."""
    stream = None if new.after is None else _stream_up_to(new.after, attempts)
    if stream is None:
        return await codec.encode_prompt(new.messages, new.tools)
    shared, added = new.messages[: new.num_shared], new.messages[new.num_shared :]
    edit = await codec.encode_context(shared, added, stream=stream, tools=new.tools)
    return [*stream[: len(stream) - edit.removed], *edit.token_ids]


def _stream_up_to(action: Action, attempts: _Attempts) -> list[int] | None:
    """Returns the tokens of the row with a turn, up to and with that turn."""
    for actions, rows in attempts:
        if not any(other is action for other in actions):
            continue
        for row in rows:
            ends = [s.end for s in row.segments() if s.turn == action.turn and s.kind is SegmentKind.MODEL]
            if ends:
                return [*row.prompt_ids, *row.response_ids[: ends[-1]]]
    return None
