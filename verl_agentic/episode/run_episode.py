"""Runs one episode: attempts in fresh environments until one counts, else a void episode.

Training, evaluation and demonstrations use the same loop with different policies.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import (
    CountsTokens,
    Env,
    EnvFactory,
    EnvRow,
    Guides,
    PlaysConversations,
    Transcript,
    UsesSubAgents,
    optional,
)
from verl_agentic.base.errors import (
    AgenticError,
    DataError,
    EnvError,
    PolicyError,
    SandboxError,
    ScoringError,
    boundary,
    describe_error,
    is_by_policy,
)
from verl_agentic.base.types import VOID_REASONS, Message, Reward, StopReason
from verl_agentic.episode.attempt.agent_conversations import play_agent, run_sub_agent
from verl_agentic.episode.attempt.attempt import Attempt, EpisodeSetup
from verl_agentic.episode.attempt.boundary_checks import check_reward
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import Codec, Schema
from verl_agentic.episode.records.episode import Episode, ErrorKind
from verl_agentic.episode.trace import timeline as activity

logger = logging.getLogger(__name__)
NO_REWARD = Reward(0.0)
_MAX_TRACE_CHARS = 8_000


async def run_episode(
    row: EnvRow,
    *,
    make_env: EnvFactory,
    setup: EpisodeSetup,
    request_id: str,
    make_attempt: Callable[..., Attempt] = Attempt,
) -> Episode:
    """Runs one episode and returns its record.

    Infrastructure failures (environment, server) are retried in a fresh environment, `limits.max_retries` times. Then
    the episode is void, as it is if the scorer fails or the deadline passes. What the policy caused after its first
    turn (`errors.is_by_policy`) is neither retried nor void: the episode has outcome 0 and is trained. None of these
    raises. Every environment is closed exactly once, also on cancellation.

    Args:
        make_env: makes the environment; must not block (slow work belongs in `start`).
        setup: policy, codec, budgets and deadlines.
        request_id: names the episode to the policy's server.
        make_attempt: makes an attempt; takes the arguments of `Attempt`.

    Raises:
        ConfigError, DataError: the row, the template or the configuration is wrong, before the first turn.
    """
    with activity.recording(uid=request_id):
        return await _run_attempts(
            row, make_env=make_env, setup=setup, request_id=request_id, make_attempt=make_attempt
        )


async def _run_attempts(
    row: EnvRow, *, make_env: EnvFactory, setup: EpisodeSetup, request_id: str, make_attempt: Callable[..., Attempt]
) -> Episode:
    deadline = time.monotonic() + setup.limits.episode_timeout_s
    number, wait_s = 0, setup.limits.retry_wait_s
    guidance, first, before = "", None, None
    while True:
        name = f"{request_id}-{number}" if number else request_id
        attempt = make_attempt(setup=setup, row=row, request_id=name, guidance=guidance)
        try:
            result = await _run_attempt(attempt, make_env=make_env, deadline=deadline)
        except DataError as cause:
            if first is None:
                raise
            result = _Result(stop=StopReason.INFRA_ERROR, error=f"the guidance cannot be given: {cause}")
        if result.guidance and not guidance:
            guidance, first = result.guidance, (attempt, result)
            request_id = f"{request_id}-guided"
            continue
        left_s = deadline - time.monotonic()
        if not result.may_retry or number >= setup.limits.max_retries or left_s <= wait_s:
            if first is not None and result.stop in VOID_REASONS:
                attempt, result = first  # counts as a failure, whatever the later attempt gives
            elif first is not None:
                attempt.info.update(cast("Any", {"guided": 1.0, "first_outcome": first[1].reward.outcome}))
            return _make_episode(attempt, result, retries=number, before=before)
        logger.warning("episode %s begins anew: %s", request_id, result.error)
        before = result.error
        with activity.span("retry_wait"):
            await asyncio.sleep(wait_s)
        number, wait_s = number + 1, 2 * wait_s


@dataclass(frozen=True, kw_only=True)
class _Result:
    """The result of an attempt."""

    stop: StopReason
    reward: Reward = NO_REWARD
    error: str | None = None
    error_kind: ErrorKind | None = None
    traceback: str = ""
    guidance: str = ""

    @property
    def may_retry(self) -> bool:
        return self.error_kind in ("env", "sandbox", "policy")


async def _run_attempt(attempt: Attempt, *, make_env: EnvFactory, deadline: float) -> _Result:
    limits, label = attempt.setup.limits, f"episode {attempt.request_id}"
    env: Env | None = None
    try:
        with boundary(EnvError, "making the environment"):
            env = make_env(attempt.row)
            if (starts_agents := optional(env, UsesSubAgents)) is not None:
                starts_agents.use_sub_agents(functools.partial(run_sub_agent, attempt))
            if (counts := optional(env, CountsTokens)) is not None:
                counts.use_token_counts(functools.partial(_count_tokens, attempt.setup.codec))
        plays_itself = optional(env, PlaysConversations) is not None
        turns = play_agent(attempt, env) if plays_itself else attempt.run(env)
        stop = await within(turns, deadline - time.monotonic(), what=label)
        if stop in VOID_REASONS or attempt.error is not None:
            return _Result(stop=stop, error=attempt.error)
        reward = await _score_episode(env, attempt.transcript(stop), limits)
        if not reward.is_scored and not attempt.setup.has_rubric:
            raise ScoringError(
                f"{type(env).__name__} leaves its outcome to a rubric and there is none; define score(), or choose "
                "a rubric"
            )
        guidance = ""
        guide = optional(env, Guides)
        if attempt.setup.guidance and reward.is_scored and reward.outcome < 1 and guide is not None:
            guidance = await _ask_guidance(guide, attempt.transcript(stop), limits)
        agent_error = str(reward.details.get("agent_error") or "") or None
        return _Result(stop=stop, reward=reward, guidance=guidance, error=agent_error)
    except OverrunError as cause:
        stop = StopReason.POLICY_FAULT if attempt.actions and cause.by_code else StopReason.TIMEOUT
        return _Result(stop=stop, error="the episode was still running at its deadline")
    except (EnvError, PolicyError, ScoringError, DataError) as cause:
        if attempt.actions and isinstance(cause, (DataError, ScoringError)) and is_by_policy(cause):
            return _make_failed_result(StopReason.POLICY_FAULT, cause)
        if not isinstance(cause, (EnvError, PolicyError, ScoringError)):
            raise
        return _make_failed_result(StopReason.INFRA_ERROR, cause, kind=_kind_of(cause))
    finally:
        if env is not None:
            await _close_env(env, limits.close_timeout_s, label)


async def _count_tokens(codec: Codec, messages: Sequence[Message], tools: Sequence[Schema]) -> int:
    return len(await codec.encode_prompt(messages, tools))


def _make_episode(attempt: Attempt, result: _Result, *, retries: int, before: str | None) -> Episode:
    is_void, error, timeline = result.stop in VOID_REASONS, result.error, activity.current()
    if is_void and before not in (None, error):
        error = f"{error}; in the attempt before: {before}"
    if error is not None:
        outcome = "void" if is_void else "a failure of its policy"
        logger.warning("episode %s is %s (%s): %s", attempt.request_id, outcome, result.stop.value, error)
    return Episode(
        trajectories=attempt.finish(is_void=is_void, filler_id=int(attempt.setup.tokenizer.eos_token_id)),
        stop_reason=result.stop,
        messages=tuple(attempt.messages),
        num_prompt_messages=len(attempt.prompt),
        actions=tuple(attempt.actions),
        reward=result.reward,
        turn_rewards=dict(attempt.turn_rewards),
        states=dict(attempt.states),
        num_side_rows=len(attempt.side_rows),
        info=dict(attempt.info),
        error=error,
        error_kind=result.error_kind,
        traceback=result.traceback,
        retries=retries,
        generate_s=attempt.generate_s,
        env_s=attempt.env_s,
        spans=() if timeline is None else timeline.spans,
        min_weights_version=attempt.min_weights_version,
        max_weights_version=attempt.max_weights_version,
    )


def _make_failed_result(stop: StopReason, error: AgenticError, *, kind: ErrorKind | None = None) -> _Result:
    trace = "".join(traceback.format_exception(error.__cause__ or error))[-_MAX_TRACE_CHARS:]
    message = f"{type(error).__name__}: {describe_error(error)}"
    return _Result(stop=stop, error=message, error_kind=kind, traceback=trace)


def _kind_of(error: AgenticError) -> ErrorKind:
    if isinstance(error, SandboxError):
        return "sandbox"
    if isinstance(error, EnvError):
        return "env"
    return "policy" if isinstance(error, PolicyError) else "scoring"


async def _score_episode(env: Env, transcript: Transcript, limits: EpisodeLimits) -> Reward:
    try:
        with boundary(ScoringError, "scoring"), activity.span("score"):
            return check_reward(await within(env.score(transcript), limits.score_timeout_s, what="scoring"))
    except ScoringError as cause:
        if isinstance(overrun := cause.__cause__, OverrunError):
            raise ScoringError(f"no score within {limits.score_timeout_s:g} s; fix the scorer") from overrun
        raise


async def _ask_guidance(env: Guides, transcript: Transcript, limits: EpisodeLimits) -> str:
    with boundary(EnvError, "the environment's guidance"), activity.span("score", label="guidance"):
        return await within(env.guidance(transcript), limits.turn_timeout_s, what="the environment's guidance")


async def _close_env(env: Env, timeout_s: float, label: str) -> None:
    """Closes the environment; a second cancellation does not interrupt it, and a failure is logged."""

    async def close() -> None:
        try:
            await within(env.close(), timeout_s, what=f"closing the environment of {label}")
        except Exception:
            logger.exception("closing the environment of %s failed; it may have leaked", label)

    with activity.span("close"):
        await asyncio.shield(asyncio.ensure_future(close()))
