"""The turns of one attempt, until the policy, the environment or a budget ends it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import Env, EnvRow, Transcript
from verl_agentic.base.errors import AgenticError, ConfigError, DataError, EnvError, PolicyError, boundary, is_by_policy
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Message, NewRow, Observation, SegmentKind, StopReason, TurnLimits
from verl_agentic.episode.attempt import boundary_checks, compaction
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import EpisodeSetup as EpisodeSetup
from verl_agentic.episode.attempt.row_prompts import encode_row
from verl_agentic.episode.attempt.stop_texts import cut_at_stop, ends_in_stop_text
from verl_agentic.episode.attempt.stopped import ENDED_BY_SERVER, Stopped, check_sampled
from verl_agentic.episode.attempt.tool_changes import announcement, tool_name
from verl_agentic.episode.codec.clipping import CHARS_PER_TOKEN, clip, encodable
from verl_agentic.episode.codec.codec import ContextTokens, Schema
from verl_agentic.episode.constraints.call_choice import choose_call
from verl_agentic.episode.constraints.ltl import CallConstraint
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.threads import offload_if_long
from verl_agentic.episode.trace import timeline, tool_spans

T = TypeVar("T")


@dataclass(kw_only=True)
class Attempt:
    """One running attempt, and its record."""

    setup: EpisodeSetup
    row: EnvRow
    request_id: str
    guidance: str = ""
    """Guidance in the prompt about an earlier failed attempt."""
    side_rows: list[Trajectory] = field(default_factory=list)
    """Training rows of sub-agents."""
    rows: list[Trajectory] = field(default_factory=list)
    """Finished training rows."""
    trajectory: Trajectory = field(default_factory=lambda: Trajectory(prompt_ids=[]))
    """The current row."""
    messages: list[Message] = field(default_factory=list)
    """The whole conversation."""
    actions: list[Action] = field(default_factory=list)
    turn_rewards: dict[int, float] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    """Turn -> the environment's key of the state in which it starts."""
    info: Counter[str] = field(default_factory=Counter)
    generate_s: float = 0.0
    env_s: float = 0.0
    min_weights_version: int | None = None
    max_weights_version: int | None = None
    error: str | None = None
    """Error message, if a failure ended the turns."""
    agent: str = ""
    """Role of the sub-agent; empty for the agent of the episode."""
    label: str = ""
    """Label of its turns in the episode's timeline; empty for the agent's own."""
    num_sampled: int = 0
    """Number of sampled tokens, sub-agents included."""
    prompt: tuple[Message, ...] = ()
    conversations: list[Attempt] = field(default_factory=list)
    """Conversations of an agent program (`agent_conversations`); at the end, those beside its own."""
    parent: Attempt | None = None
    """The attempt that a conversation belongs to."""
    stop: StopReason | None = None
    """Reason, if a conversation is over."""
    constraint: CallConstraint | None = None
    _context: list[Message] = field(default_factory=list)
    """The conversation as the policy sees it in this row."""
    _tools: Sequence[Schema] = ()
    """The tools in the prompt of this row."""
    _announced: Sequence[Schema] | None = None
    """The tools that the policy can call now, if they have changed since this row began."""
    _offered: Sequence[Schema] = ()
    """The tools that the environment had when it was asked last."""
    tool_names: Sequence[str] = ()
    _turn: int = 0
    _last_turn: StopReason | None = None
    """Reason, if the policy was told that this turn is the last."""
    _turn_limits: TurnLimits = field(default_factory=TurnLimits)
    """Limits of the environment for the next turn."""

    async def run(self, env: Env) -> StopReason:
        """Runs all turns and returns the stop reason."""
        try:
            await self._start_episode(env)
            while True:
                await self._play_turn(env)
        except Stopped as stop:
            self.error = stop.error
            return stop.reason

    def transcript(self, stop: StopReason) -> Transcript:
        """Returns the transcript for scorers."""
        return Transcript(messages=tuple(self.messages), actions=tuple(self.actions), stop_reason=stop)

    def finish(self, *, is_void: bool, filler_id: int) -> tuple[Trajectory, ...]:
        """Returns the training rows: each ends on a sampled token, or is void."""
        if any(self.trajectory.response_mask) or not self.rows:
            self.rows.append(self.trajectory)  # else: shortened, and nothing was sampled since
        for row in self.rows:
            row.agent = self.agent
        for side in self.conversations:
            self.side_rows += side.finish(is_void=is_void, filler_id=filler_id) if side.actions else ()
            self.info.update(side.info)
        rows = (*self.side_rows, *self.rows)
        for row in rows:
            if is_void or not any(row.response_mask):
                row.void(filler_id=filler_id)
            else:
                row.trim_context()
            row.check()
        return rows

    async def converse(self, observation: Observation, *, limits: TurnLimits) -> Action:
        """Samples a turn of a conversation without an environment; see `env.AgentConversation`.

        Raises:
            Stopped: a budget or a failure ended it.
        """
        if self._last_turn is not None or len(self.actions) >= self.setup.limits.max_turns:
            raise Stopped(self._last_turn or StopReason.MAX_TURNS)
        self._turn_limits = limits
        new = observation.new_row
        if new is not None and not self.actions:
            self.prompt = self._with_notes(new).messages
            self.messages = list(self.prompt)
            await self.begin_row(new)
            with contextlib.suppress(ConfigError):  # that of a sub-agent, with other tools
                if self.setup.constraint:
                    self.constraint = CallConstraint(self.setup.constraint, self.tool_names)
        else:
            self._turn += 1
            await self._append_observation(observation)
        while True:
            action, cut = await self._sample_action()
            if cut is not None and not cut[1]:
                raise Stopped(cut[0])
            refused = self.constraint.refuse_answer(action) if self.constraint is not None and cut is None else None
            if cut is None and refused is None:
                return action
            self._turn += 1
            if refused is None:
                await self._announce_last_turn([], cut[0] if cut is not None else StopReason.MAX_TOKENS)
            elif len(self.actions) >= self.setup.limits.max_turns:
                raise Stopped(StopReason.MAX_TURNS)
            else:
                await self._append_observation(refused)

    def _with_notes(self, new: NewRow) -> NewRow:
        """Returns a row whose prompt has the instruction and the guidance, like that of an environment."""
        notes = [note for note in (self.setup.instruction, self.guidance) if note]
        index = next((index for index, m in enumerate(new.messages) if m.role == "assistant"), len(new.messages))
        prompt = list(new.messages[:index])
        for note in notes if prompt else ():
            prompt = compaction.with_note(prompt, note)
        return replace(new, messages=(*prompt, *new.messages[index:]))

    # The start, and a turn.

    async def _start_episode(self, env: Env) -> None:
        with timeline.span("start", label=self.label):
            await self.start_env(env)
        self.messages.extend(self.prompt)
        self._context.extend(self.prompt)
        with boundary(DataError, "rendering the prompt"):
            self.trajectory.prompt_ids = await self.setup.codec.encode_prompt(self._context, self._tools)

    async def start_env(self, env: Env) -> None:
        """Starts the environment and reads its prompt and tools."""
        started = time.monotonic()
        try:
            prompt = await within(
                _await_guarded(env.start(), EnvError, "starting the environment"),
                self.setup.limits.start_timeout_s,
                what="the start of the environment",
            )
        except OverrunError as cause:
            raise EnvError(f"the environment did not start, got {cause}; fix it, or raise start_timeout_s") from cause
        with boundary(EnvError, "the prompt and the tools of the environment"):
            for note in filter(None, (self.setup.instruction, self.guidance)):
                prompt = tuple(compaction.with_note(prompt, note))
            self.prompt = tuple(prompt)
            boundary_checks.check_messages(self.prompt)
            self._tools = self._offered = list_schemas(env.tools)
            self.tool_names = [tool.name for tool in env.tools]
        if self.setup.constraint:
            self.constraint = CallConstraint(self.setup.constraint, self.tool_names)
        if self.label != timeline.SUB_AGENT:
            self.info["tools_offered"] = len(self._tools)
        self.env_s += time.monotonic() - started

    async def _play_turn(self, env: Env) -> None:
        limits = self.setup.limits
        if hasattr(env, "state_key"):
            with boundary(EnvError, "the environment's state_key"):
                self.states[self._turn] = cast("Any", env).state_key()
        if hasattr(env, "turn_limits"):
            with boundary(EnvError, "the environment's turn_limits"):
                self._turn_limits = cast("Any", env).turn_limits()
        action, cut = await self._sample_action()
        if cut is not None:
            reason, by_reserve = cut
            if not by_reserve:
                raise Stopped(reason)
            self._turn += 1
            await self._announce_last_turn([], reason)
            return
        if self._last_turn is not None and action.tool_calls:
            raise Stopped(self._last_turn)
        refused = self.constraint.refuse_answer(action) if self.constraint is not None else None
        observation = await self._step_env(env, action) if refused is None else refused
        if observation.stop is not None:
            raise Stopped(observation.stop)
        if self._last_turn is not None:
            raise Stopped(self._last_turn)
        if len(self.actions) >= limits.max_turns:
            raise Stopped(StopReason.MAX_TURNS)
        await self._append_observation(self._with_tool_changes(observation, env))
        self._turn += 1

    async def _sample_action(self) -> tuple[Action, tuple[StopReason, bool] | None]:
        """Samples a turn; returns it parsed, and the budget that truncated it, if any."""
        num_context_tokens = len(self.trajectory.prompt_ids) + len(self.trajectory.response_ids)
        forced = await self._force_beginning()
        completion, cut, is_limited = await self._generate_turn()
        with boundary(EnvError, "parsing a turn"):
            action = await self.setup.codec.decode_action(
                [*forced, *completion.token_ids], turn=self._turn, tools=self._callable_tools
            )
        action = boundary_checks.limit_calls(action, self.setup.limits.max_calls_per_turn)
        if self.constraint is not None:
            action = self.constraint.apply(action)
        num_tokens = len(forced) + len(completion.token_ids)
        action = replace(action, num_context_tokens=num_context_tokens, num_tokens=num_tokens, is_cut=is_limited)
        self.info.update(action.counts)
        self.actions.append(action)
        self.messages.append(action.to_message())
        self._context.append(action.to_message())
        return action, cut

    async def _force_beginning(self) -> list[int]:
        """Starts the turn with forced text of exploration or of the environment; returns its tokens."""
        exploration, codec = self.setup.exploration, self.setup.codec
        with boundary(DataError, "the row's partial solution"):
            text = exploration.beginning(self.row) if not self.actions else ""
        required = self.constraint.required_calls if self.constraint is not None and self._last_turn is None else ()
        if len(required) == 1:
            text = codec.call_prefix(required[0])
        elif not text and exploration.epsilon_tool and self._last_turn is None:
            tool = exploration.tool(self._turn, self.tool_names)
            text = codec.call_prefix(tool) if tool is not None else ""
        if not text and self._turn_limits.tool:
            text = codec.call_prefix(self._turn_limits.tool)
        masks = len(required) > 1 and self.setup.constraint_masks
        beginnings = [codec.call_prefix(tool) for tool in required] if masks else [text]
        options = [
            list(self.setup.tokenizer.encode(beginning, add_special_tokens=False))
            for beginning in beginnings
            if beginning
        ]
        choosing = choose_call(self.setup.policy, options, stream=self.trajectory.token_ids, request_id=self.request_id)
        ids = await self._limit_time(_await_guarded(choosing, PolicyError, "choosing a call"), "choosing a call")
        if not ids or len(ids) >= self._compute_budget()[0]:
            return []
        self.trajectory.append_context(ids, turn=self._turn, kind=SegmentKind.FRAMEWORK)
        self.info["forced_tokens"] += len(ids)
        return ids

    async def _generate_turn(self) -> tuple[Completion, tuple[StopReason, bool] | None, bool]:
        """Samples a turn; returns it, the budget that truncated it, and whether the environment's limit did."""
        max_tokens, reason, by_reserve = self._compute_budget()
        if max_tokens < 1:
            if self.actions:
                raise Stopped(reason)
            raise DataError(
                f"the prompt has {len(self.trajectory.prompt_ids)} tokens and max_context_tokens is "
                f"{self.setup.limits.max_context_tokens}; raise the limit or filter such rows out"
            )
        env_limit = self._turn_limits.max_tokens
        is_own = env_limit is not None and env_limit <= max_tokens
        completion = await self._sample_tokens(min(max_tokens, env_limit) if env_limit is not None else max_tokens)
        codec, tokenizer = self.setup.codec, self.setup.tokenizer
        has_ended = ends_in_stop_text(completion.token_ids, codec.stop_texts, tokenizer=tokenizer)
        if completion.finish_reason in ENDED_BY_SERVER:
            return completion, (ENDED_BY_SERVER[completion.finish_reason], False), False
        is_cut = completion.finish_reason == "length" and not has_ended
        return completion, (reason, by_reserve) if is_cut and not is_own else None, is_cut and is_own

    async def _sample_tokens(self, max_tokens: int) -> Completion:
        started = time.monotonic()
        generating = self.setup.policy.generate(
            self.trajectory.token_ids, messages=self._context, max_tokens=max_tokens, request_id=self.request_id
        )
        with timeline.span("generate", label=self.label, turn=self._turn):
            completion = await self._limit_time(
                _await_guarded(generating, PolicyError, "generating a turn"), "generating a turn"
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

    async def _step_env(self, env: Env, action: Action) -> Observation:
        started = time.monotonic()
        with tool_spans.watched_step(action, tool_names=self.tool_names, label=self.label) as watch:
            step, label = env.step(action), "the environment's step"
            try:
                observation = await self._limit_time(_await_guarded(step, EnvError, label), label)
            except EnvError as cause:
                if is_by_policy(cause):
                    raise Stopped(StopReason.POLICY_FAULT, f"{type(cause).__name__}: {cause}") from cause
                raise
        self.env_s += time.monotonic() - started
        with boundary(EnvError, "reading the environment's answer"):
            boundary_checks.check_observation(observation)
            watch.answered(observation)
            self.info.update(observation.info)
        if observation.reward:
            self.turn_rewards[action.turn] = observation.reward
        return observation

    async def _limit_time(self, awaitable: Awaitable[T], label: str) -> T:
        try:
            return await within(awaitable, self.setup.limits.turn_timeout_s, what=label)
        except OverrunError as cause:
            raise Stopped(StopReason.POLICY_FAULT if cause.by_code else StopReason.TIMEOUT, str(cause)) from cause

    @property
    def _callable_tools(self) -> Sequence[Schema]:
        return self._tools if self._announced is None else self._announced

    def _with_tool_changes(self, observation: Observation, env: Env) -> Observation:
        """Adds a message about tools that have changed since the last turn. The prompt keeps its tools, so that the
        tokens of the row stay those that the engine saw. A new row has its own tools."""
        if observation.new_row is not None:
            return observation
        with boundary(EnvError, "the environment's tools"):
            before, self._offered = self._offered, list_schemas(env.tools)
            if self._offered == before:
                return observation
            text = announcement(self.setup.codec, before, self._offered)
        self._announced = self._offered
        self.tool_names = [tool_name(schema) for schema in self._announced]
        self.info["tools_offered"] = max(self.info["tools_offered"], len(self._announced))
        return replace(observation, messages=(*observation.messages, Message("user", text))) if text else observation

    # Budgets.

    def _compute_budget(self) -> tuple[int, StopReason, bool]:
        """Returns the next turn's token budget, the stop reason if it is used up, and whether the reserve limits it."""
        limits = self.setup.limits
        (room, reason), reserve = self._compute_room(), self._compute_reserve()
        if limits.max_turn_tokens is not None and limits.max_turn_tokens <= room - reserve:
            return limits.max_turn_tokens, StopReason.MAX_TOKENS, False
        return room - reserve, reason, reserve > 0

    def _compute_reserve(self) -> int:
        """Returns the tokens that the next turn must leave for the answer; 0 if it is the last one."""
        is_last = self._last_turn is not None or len(self.actions) + 1 >= self.setup.limits.max_turns
        reserve = self.setup.limits.answer_reserve_tokens
        return 0 if is_last or self._compute_room()[0] <= reserve else reserve

    def _compute_room(self, added: int = 0) -> tuple[int, StopReason]:
        """Returns how many tokens are left after `added` more context tokens, and the limiting budget."""
        room, reason = self._row_room(added)
        limit = self.setup.limits.max_episode_tokens
        if limit is not None and limit - self.num_sampled < room:
            return limit - self.num_sampled, StopReason.MAX_TOKENS
        return room, reason

    def _row_room(self, added: int = 0) -> tuple[int, StopReason]:
        """Returns how many tokens still fit into this row."""
        limits, row = self.setup.limits, self.trajectory
        length = len(row.response_ids) + added
        response_left = limits.max_response_tokens - length
        context_left = limits.max_context_tokens - len(row.prompt_ids) - length
        if context_left < response_left:
            return context_left, StopReason.CONTEXT_FULL
        return response_left, StopReason.MAX_TOKENS

    # Observations.

    async def _append_observation(self, observation: Observation) -> None:
        """Appends the observation; shortens or ends the conversation if it leaves no room."""
        if observation.new_row is not None:
            self.messages.extend(observation.messages)
            self.rows.append(self.trajectory)
            await self.begin_row(observation.new_row)
            return
        limits, shorten = self.setup.limits, self.setup.compaction
        new, edit = await self._encode_clipped(observation.messages)
        if observation.dropped_calls:
            await self._drop_calls(observation.dropped_calls, new)
            return
        is_tight = shorten is not None and self._row_room(edit.growth)[0] < shorten.needed_tokens
        if shorten is not None and is_tight and await self._shorten_context(shorten, new):
            return
        if limits.answer_reserve_tokens:
            room, reason = self._compute_room(edit.growth)
            if len(self.actions) + 1 >= limits.max_turns:
                reason = StopReason.MAX_TURNS
            if reason is StopReason.MAX_TURNS or room <= limits.answer_reserve_tokens:
                await self._announce_last_turn(new, reason)
                return
        self._append_messages(new, edit)

    async def _announce_last_turn(self, new: list[Message], reason: StopReason) -> None:
        """Appends new messages, and the notice that the next turn is the last one.

        New messages are cut to preserve the reserve for the answer.
        """
        limits = self.setup.limits
        self._last_turn = reason
        self.info["final_notices"] += 1
        if new:
            new = await self._fit_messages(new, reserve=limits.answer_reserve_tokens)
        room = self._compute_room()[0]
        for _ in range(3):  # the length of the notice depends on the number in it
            num_tokens = room if limits.max_turn_tokens is None else min(room, limits.max_turn_tokens)
            notice = Message("user", limits.final_notice.replace("{tokens}", str(max(num_tokens, 0))))
            edit = await self._encode_messages([*new, notice])
            before, room = room, self._compute_room(edit.growth)[0]
            if room == before:
                break
        self._append_messages([*new, notice], edit)

    async def _encode_clipped(self, messages: Sequence[Message]) -> tuple[list[Message], ContextTokens]:
        """Returns the messages cut to their limits, and their tokens.

        Messages that are short together are not counted one by one.
        """
        limits = self.setup.limits
        cap = min(limits.max_observation_tokens or limits.max_context_tokens, limits.max_context_tokens)
        new = [replace(message, content=encodable(message.content)) for message in messages]
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

    # Several rows.

    async def begin_row(self, new: NewRow) -> None:
        """Continues in a new row with another conversation."""
        new = self._with_notes(new)
        self.trajectory = Trajectory(prompt_ids=[])
        self._tools, self._announced = list(new.tools), None
        self._offered, self.tool_names = self._tools, list(map(tool_name, new.tools))
        self.info["tools_offered"] = max(self.info["tools_offered"], len(self._tools))
        self._context = list(new.messages)
        with boundary(DataError, "rendering a conversation"):
            first = self.parent or self
            attempts = [(a.actions, (*a.rows, a.trajectory)) for a in (first, *first.conversations)]
            self.trajectory.prompt_ids = await encode_row(new, self.setup.codec, attempts)
        room, reason = self._compute_room()
        if room < 1 and self.actions:
            raise Stopped(reason)

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


async def _await_guarded(awaitable: Awaitable[T], error: type[AgenticError], label: str) -> T:
    with boundary(error, label):
        return await awaitable
