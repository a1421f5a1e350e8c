"""The turns of one attempt, until the policy, the environment or a budget ends it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import Env, HasStateKey, LimitsTurns, optional
from verl_agentic.base.errors import ConfigError, DataError, EnvError, PolicyError, boundary, is_by_policy
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Message, Observation, SegmentKind, StopReason, TurnLimits
from verl_agentic.episode.attempt import boundary_checks, compaction
from verl_agentic.episode.attempt.call_choice import choose_call, make_constraint
from verl_agentic.episode.attempt.episode_setup import EpisodeSetup as EpisodeSetup
from verl_agentic.episode.attempt.tool_changes import announcement, tool_name
from verl_agentic.episode.attempt.training_rows import AttemptRows, await_guarded
from verl_agentic.episode.attempt.turn_end import ENDED_BY_SERVER, Stopped, ends_in_stop_text
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.trace import timeline, tool_spans


@dataclass(kw_only=True)
class Attempt(AttemptRows):
    """One running attempt: the loop over its turns."""

    conversations: list[Attempt] = field(default_factory=list)
    """Conversations of an agent program (`agent_conversations`); at the end, those beside its own."""
    parent: Attempt | None = None
    """The attempt that a conversation belongs to."""

    def finish(self, *, is_void: bool, filler_id: int) -> tuple[Trajectory, ...]:
        """Returns the training rows, with those of conversations beside the agent's own."""
        for side in self.conversations:
            self.side_rows += side.finish(is_void=is_void, filler_id=filler_id) if side.actions else ()
            self.info.update(side.info)
        return super().finish(is_void=is_void, filler_id=filler_id)

    def _list_related(self) -> Sequence[Attempt]:
        first = self.parent or self
        return [first, *first.conversations]

    async def run(self, env: Env) -> StopReason:
        """Runs all turns and returns the stop reason."""
        try:
            await self._start_episode(env)
            while True:
                await self._play_turn(env)
        except Stopped as stop:
            self.error = stop.error
            return stop.reason

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
                self.constraint = make_constraint(self.setup.constraint, self.tool_names)
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
                await_guarded(env.start(), EnvError, "starting the environment"),
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
        self.constraint = make_constraint(self.setup.constraint, self.tool_names)
        if self.label != timeline.SUB_AGENT:
            self.info["tools_offered"] = len(self._tools)
        self.env_s += time.monotonic() - started

    async def _play_turn(self, env: Env) -> None:
        limits = self.setup.limits
        if (keyed := optional(env, HasStateKey)) is not None:
            with boundary(EnvError, "the environment's state_key"):
                self.states[self._turn] = keyed.state_key()
        if (limiting := optional(env, LimitsTurns)) is not None:
            with boundary(EnvError, "the environment's turn_limits"):
                self._turn_limits = limiting.turn_limits()
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
        if not options:
            return []
        choosing = choose_call(self.setup.policy, options, stream=self.trajectory.token_ids, request_id=self.request_id)
        ids = await self._limit_time(await_guarded(choosing, PolicyError, "choosing a call"), "choosing a call")
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

    async def _step_env(self, env: Env, action: Action) -> Observation:
        started = time.monotonic()
        with tool_spans.watched_step(action, tool_names=self.tool_names, label=self.label) as watch:
            step, label = env.step(action), "the environment's step"
            try:
                observation = await self._limit_time(await_guarded(step, EnvError, label), label)
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
