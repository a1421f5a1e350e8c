"""One episode: a policy and an environment take turns until one of them, or a budget, ends it.

The same loop serves training, evaluation and demonstrations; only the policy behind it changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from verl_agentic.agent_loops.codec import Codec, Schema
from verl_agentic.agent_loops.episode import Episode
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.agent_loops.policy import Completion, Policy
from verl_agentic.env import Env, EnvFactory, EnvRow, Transcript
from verl_agentic.errors import AgenticError, DataError, EnvError, PolicyError, ScoringError, boundary
from verl_agentic.trajectory import Trajectory
from verl_agentic.types import VOID_REASONS, Action, Message, Observation, Reward, SegmentKind, StopReason

logger = logging.getLogger(__name__)
T = TypeVar("T")


async def run_episode(
    row: EnvRow,
    *,
    make_env: EnvFactory,
    policy: Policy,
    codec: Codec,
    limits: EpisodeLimits,
    request_id: str,
    filler_id: int,
) -> Episode:
    """Plays one episode in a fresh environment and returns its record.

    What fails around the policy (environment, server, scorer) or runs past a deadline makes the episode void; it
    does not raise. The environment is closed exactly once on every way out, cancellation included.

    Args:
        row: what is played.
        make_env: makes the environment; must not block, its slow part belongs into `start`.
        policy: who samples.
        codec: how messages become tokens and back.
        limits: budgets and deadlines.
        request_id: names the episode to the policy's server.
        filler_id: the token of a void row that has no other (any id; its mask is 0).

    Raises:
        ConfigError, DataError: the row, the template or the configuration is wrong; no retry can help.
    """
    play = _Play(policy=policy, codec=codec, limits=limits, request_id=request_id)
    env: Env | None = None
    stop, reward, error = StopReason.INFRA_ERROR, Reward(0.0), None
    try:
        with boundary(EnvError, "making the environment"):
            env = make_env(row)
        stop = await _within(play.run(env), limits.episode_timeout_s)
        if stop not in VOID_REASONS:
            reward = await _score(env, play.transcript(stop), limits)
    except _Stopped as end:
        stop, error = end.reason, "the episode was still running at its deadline"
    except (EnvError, PolicyError, ScoringError) as cause:
        stop, error = StopReason.INFRA_ERROR, f"{type(cause).__name__}: {cause}"
        logger.warning("episode %s is void: %s", request_id, error)
    finally:
        if env is not None:
            await _close(env, limits.close_timeout_s, request_id)
    return play.finish(stop, reward, error, filler_id=filler_id)


class _Stopped(Exception):
    """Ends the turns of an episode; never leaves this module."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(kw_only=True)
class _Play:
    """An episode while it is played."""

    policy: Policy
    codec: Codec
    limits: EpisodeLimits
    request_id: str
    trajectory: Trajectory = field(default_factory=lambda: Trajectory(prompt_ids=[]))
    messages: list[Message] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    turn_rewards: dict[int, float] = field(default_factory=dict)
    context_kinds: dict[int, SegmentKind] = field(default_factory=dict)
    info: Counter[str] = field(default_factory=Counter)
    generate_s: float = 0.0
    env_s: float = 0.0
    min_weights_version: int | None = None
    max_weights_version: int | None = None

    async def run(self, env: Env) -> StopReason:
        """Plays all turns and returns why they ended."""
        try:
            tools = await self._start(env)
            for turn in range(self.limits.max_turns):
                await self._play_turn(env, turn, tools)
        except _Stopped as end:
            return end.reason
        return StopReason.MAX_TURNS

    def transcript(self, stop: StopReason) -> Transcript:
        """Returns what a scorer may see."""
        return Transcript(messages=tuple(self.messages), actions=tuple(self.actions), stop_reason=stop)

    def finish(self, stop: StopReason, reward: Reward, error: str | None, *, filler_id: int) -> Episode:
        """Returns the record: ends on a sampled token, or is void."""
        if stop in VOID_REASONS:
            self.trajectory.void(filler_id=filler_id)
        else:
            self.trajectory.trim_context()
        self.trajectory.check()
        return Episode(
            trajectories=(self.trajectory,),
            stop_reason=stop,
            messages=tuple(self.messages),
            actions=tuple(self.actions),
            reward=reward,
            turn_rewards=dict(self.turn_rewards),
            context_kinds=dict(self.context_kinds),
            info=dict(self.info),
            error=error,
            generate_s=self.generate_s,
            env_s=self.env_s,
            min_weights_version=self.min_weights_version,
            max_weights_version=self.max_weights_version,
        )

    async def _start(self, env: Env) -> list[Schema]:
        started = time.monotonic()
        with boundary(EnvError, "starting the environment"):
            self.messages.extend(await env.start())
            tools = [tool.schema for tool in env.tools]
        self.env_s += time.monotonic() - started
        with boundary(DataError, "rendering the prompt"):
            self.trajectory.prompt_ids = await self.codec.encode_prompt(self.messages, tools)
        return tools

    async def _play_turn(self, env: Env, turn: int, tools: Sequence[Schema]) -> None:
        completion, cut = await self._generate(turn)
        with boundary(DataError, "parsing a turn"):
            action = await self.codec.decode_action(completion.token_ids, turn=turn, tools=tools)
        self.actions.append(action)
        self.messages.append(action.to_message())
        if cut is not None:
            raise _Stopped(cut)
        observation = await self._step(env, action)
        if observation.stop is not None:
            raise _Stopped(observation.stop)
        if turn + 1 < self.limits.max_turns:
            await self._observe(observation, turn, tools)

    async def _generate(self, turn: int) -> tuple[Completion, StopReason | None]:
        """Samples a turn; returns it, and the budget that cut it short, if one did."""
        max_tokens, exhausted = self._budget()
        started = time.monotonic()
        completion = await _within(
            _guarded(
                self.policy.generate(
                    self.trajectory.token_ids,
                    messages=self.messages,
                    max_tokens=max_tokens,
                    request_id=self.request_id,
                ),
                PolicyError,
                "generating a turn",
            ),
            self.limits.turn_timeout_s,
        )
        self.generate_s += time.monotonic() - started
        if completion.finish_reason == "aborted":
            raise _Stopped(StopReason.CANCELLED)
        if not 0 < len(completion.token_ids) <= max_tokens:
            raise PolicyError(
                f"a turn must have 1 to {max_tokens} tokens, got {len(completion.token_ids)}; mend the policy's server"
            )
        self.trajectory.append_sampled(completion.token_ids, completion.log_probs, turn=turn)
        if self.min_weights_version is None:
            self.min_weights_version = completion.min_weights_version
        self.max_weights_version = completion.max_weights_version
        return completion, exhausted if completion.finish_reason == "length" else None

    def _budget(self) -> tuple[int, StopReason]:
        """Returns how many tokens the coming turn may have, at least 1, and why it ends if it uses them all."""
        response_left = self.limits.max_response_tokens - len(self.trajectory.response_ids)
        context_left = self.limits.max_context_tokens - len(self.trajectory.token_ids)
        if context_left < 1:
            raise (
                _Stopped(StopReason.CONTEXT_FULL)
                if self.actions
                else DataError(
                    f"the prompt has {len(self.trajectory.prompt_ids)} tokens and max_context_tokens is "
                    f"{self.limits.max_context_tokens}; raise the limit or filter such rows out"
                )
            )
        budget = min(response_left, self.limits.max_turn_tokens or response_left)
        if context_left < budget:
            return context_left, StopReason.CONTEXT_FULL
        return budget, StopReason.MAX_TOKENS

    async def _step(self, env: Env, action: Action) -> Observation:
        started = time.monotonic()
        observation = await _within(
            _guarded(env.step(action), EnvError, "the environment's step"), self.limits.turn_timeout_s
        )
        self.env_s += time.monotonic() - started
        if observation.reward:
            self.turn_rewards[action.turn] = observation.reward
        self.info.update(observation.info)
        if observation.stop is None and not observation.messages:
            raise EnvError("the environment gave neither messages nor a stop reason; its step must return one of them")
        return observation

    async def _observe(self, observation: Observation, turn: int, tools: Sequence[Schema]) -> None:
        """Appends the observation, unless it leaves no room for another turn."""
        new = list(observation.messages)
        with boundary(DataError, "rendering an observation"):
            edit = await self.codec.encode_context(self.messages, new, stream=self.trajectory.token_ids, tools=tools)
        grown = len(edit.token_ids) - edit.removed
        self.messages.extend(new)
        if len(self.trajectory.token_ids) + grown >= self.limits.max_context_tokens:
            raise _Stopped(StopReason.CONTEXT_FULL)
        if len(self.trajectory.response_ids) + grown >= self.limits.max_response_tokens:
            raise _Stopped(StopReason.MAX_TOKENS)
        self.trajectory.drop_tail(edit.removed)
        self.trajectory.append_context(edit.token_ids, turn=turn)
        is_tool = any(message.role == "tool" for message in new)
        self.context_kinds[turn] = SegmentKind.TOOL if is_tool else SegmentKind.USER


async def _guarded(awaitable: Awaitable[T], error: type[AgenticError], what: str) -> T:
    with boundary(error, what):
        return await awaitable


async def _within(awaitable: Awaitable[T], timeout_s: float) -> T:
    """Returns the result, or cancels the work at its deadline and stops the episode with `timeout`."""
    try:
        return await asyncio.wait_for(awaitable, timeout_s)
    except AgenticError:
        raise  # some of ours are timeouts too, with a reason of their own
    except asyncio.TimeoutError as cause:
        raise _Stopped(StopReason.TIMEOUT) from cause


async def _score(env: Env, transcript: Transcript, limits: EpisodeLimits) -> Reward:
    try:
        return await _within(_guarded(env.score(transcript), ScoringError, "scoring"), limits.score_timeout_s)
    except _Stopped as cause:
        raise ScoringError(f"no score within {limits.score_timeout_s:g} s; mend the scorer") from cause


async def _close(env: Env, timeout_s: float, request_id: str) -> None:
    """Closes the environment; a second cancellation does not interrupt it, and a failure is logged."""
    closing = asyncio.ensure_future(asyncio.wait_for(env.close(), timeout_s))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        raise
    except Exception:
        logger.exception("closing the environment of episode %s failed; it may have leaked", request_id)
