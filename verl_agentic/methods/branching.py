"""Episodes of one prompt that branch from each other (by `methods.branching_rule`).

A branch starts with the exact tokens of its parent episode, and with its own environment, in which the recorded actions
are repeated. If the environment answers differently, the branch is rejected, and its sample starts from the beginning.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import Env, EnvFactory, EnvRow, HasStateKey, optional
from verl_agentic.base.errors import DataError, EnvError, boundary
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Observation
from verl_agentic.episode.attempt.attempt import Attempt, EpisodeSetup
from verl_agentic.episode.loop_settings import NOT_SHARED, Branching
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.episode.trace import timeline
from verl_agentic.methods.branching_rule import entropy_rise, num_branches

logger = logging.getLogger(__name__)
_STATE = (
    *("messages", "actions", "turn_rewards", "states", "info", "num_sampled", "_context", "_turn", "_last_turn"),
    *("min_weights_version", "max_weights_version", "_offered", "_announced", "tool_names", "constraint"),
)
"""State that a branch copies from its parent, besides its tokens."""


async def run_branching_episode(
    row: EnvRow,
    *,
    make_env: EnvFactory,
    setup: EpisodeSetup,
    request_id: str,
    branching: Branching,
    group: str,
    vocab_size: int,
) -> tuple[Episode, list[list[int]]]:
    """Runs one episode of a group: at once, from a sibling's branch point, or when no sibling can offer one.

    Every call returns one episode. It waits at most `limits.episode_timeout_s`; the deadline of its episode starts
    after the wait.

    Args:
        row: the same for the whole group.
        setup: policy, codec, budgets and deadlines.
        request_id: names the episode to the policy's server.
        branching: the rule; the same for the whole group.
        group: name of the group. Its members must run concurrently in this event loop.

    Returns:
        The episode, and for each of its rows the ids of `CreditBatch.shared_BT`, one per response token.
    """
    attempts: list[BranchingAttempt] = []

    async def run(point: BranchPoint | None, info: Counter[str]) -> Episode:
        def make_attempt(**options: Any) -> Attempt:
            attempt = BranchingAttempt(
                **options,
                siblings=siblings,
                vocab_size=vocab_size,
                point=point,
                info=Counter(info),
                id=siblings.new_id(),
            )
            attempts.append(attempt)
            return attempt

        return await run_episode(row, make_env=make_env, setup=setup, request_id=request_id, make_attempt=make_attempt)

    with _members_of(group, branching) as siblings:
        async with siblings.place(timeout_s=setup.limits.episode_timeout_s) as point:
            try:
                episode = await run(point, Counter())
            except BranchRefused as cause:
                logger.info("a branch of group %s is played from the beginning: %s", group, cause)
                episode = await run(None, Counter(branch_refused=1))
    return episode, _shared_ids(episode, attempts)


class BranchRefused(Exception):
    """The environment cannot reach the state of a branch point. Internal to this module."""


@dataclass(frozen=True, kw_only=True)
class BranchPoint:
    """An episode up to the policy's turn after a tool's observation."""

    trajectory: Trajectory
    """Its row up to this point."""
    shared_ids: list[int]
    """Id of the attempt that sampled each of its response tokens."""
    steps: tuple[tuple[Action, Observation], ...]
    """Actions and observations so far."""
    state: dict[str, Any]
    """Other state of the attempt (`_STATE`)."""
    state_key: str | None
    """The environment's key of its state, or None."""
    first_log_probs: list[float]


class Siblings:
    """The running and waiting episodes of one prompt.

    While one waits, at least one runs. When the last one ends without a branch point, all waiting ones start.
    """

    def __init__(self, branching: Branching, *, seed: int | str | None = None) -> None:
        """Makes an empty group; `seed` is for its draws."""
        self.branching = branching
        self.num_members = 0
        self._draw = random.Random(seed).random
        self._ids = itertools.count()
        self._num_initial = 0
        self._num_playing = 0
        self._waiting: deque[asyncio.Future[BranchPoint | None]] = deque()

    @property
    def num_waiting(self) -> int:
        """Number of waiting episodes."""
        return len(self._waiting)

    def new_id(self) -> int:
        """Returns an id that is unique in the group."""
        return next(self._ids)

    def num_branches(self, *, rise: float) -> int:
        """Draws how many waiting episodes start at a place; `rise` is the rise of entropy there."""
        return num_branches(self.branching, rise=rise, num_free=self.num_waiting, draw=self._draw)

    def begin(self, point: BranchPoint | None) -> None:
        """Starts the longest waiting episode, at a branch point or from the beginning."""
        self._num_playing += 1
        self._waiting.popleft().set_result(point)

    @asynccontextmanager
    async def place(self, *, timeout_s: float) -> AsyncIterator[BranchPoint | None]:
        """Waits for a place to start, None being the beginning; the member runs until the context ends."""
        point = await self._wait_for_branch(timeout_s)
        try:
            yield point
        finally:
            self._end_episode()

    async def _wait_for_branch(self, timeout_s: float) -> BranchPoint | None:
        if self._num_initial < self.branching.initial or not self._num_playing:
            self._num_initial += 1
            self._num_playing += 1
            return None
        turn: asyncio.Future[BranchPoint | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            with timeline.span("branch_wait"):
                await asyncio.wait([turn], timeout=timeout_s)
        except asyncio.CancelledError:
            if turn.done():
                self._end_episode()
            else:
                self._waiting.remove(turn)
            raise
        if turn.done():
            return turn.result()
        self._waiting.remove(turn)
        self._num_playing += 1
        return None

    def _end_episode(self) -> None:
        self._num_playing -= 1
        if not self._num_playing:
            while self._waiting:
                self.begin(None)


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """The start of the policy's next turn."""

    length: int
    """Response tokens before it."""
    state: dict[str, Any]


@dataclass(kw_only=True)
class BranchingAttempt(Attempt):
    """An attempt that may start at a branch point, and offers branch points to its siblings."""

    siblings: Siblings
    vocab_size: int
    id: int
    """Id of the tokens that this attempt sampled and its siblings share."""
    point: BranchPoint | None = None
    steps: list[tuple[Action, Observation]] = field(default_factory=list)
    first_log_probs: list[float] = field(default_factory=list)
    """Log-probs of the tokens sampled at the start of the first turn."""
    _mark: _Mark | None = None
    _num_given: int = 0
    """Length of the longest prefix passed to a sibling."""

    @property
    def first_row(self) -> Trajectory:
        """The row that siblings may share."""
        return self.rows[0] if self.rows else self.trajectory

    def shared_ids(self, length: int) -> list[int]:
        """Returns the ids of the first `length` response tokens of the first row."""
        inherited = [] if self.point is None else self.point.shared_ids
        own_ids = [self.id] * (self._num_given - len(inherited))
        return [*inherited, *own_ids, *[NOT_SHARED] * length][:length]

    async def _start_episode(self, env: Env) -> None:
        await super()._start_episode(env)
        if self.point is not None:
            with timeline.span("start", label="branch"):
                await self._return_to(env, self.point)

    async def _return_to(self, env: Env, point: BranchPoint) -> None:
        """Brings the environment to a branch point and copies its state. Raises BranchRefused if answers differ."""
        if self.trajectory.prompt_ids != point.trajectory.prompt_ids:
            raise BranchRefused("the environment begins with another prompt")
        started = time.monotonic()
        for action, before in point.steps:
            try:
                again = await within(
                    _repeat_step(env, action),
                    self.setup.limits.turn_timeout_s,
                    what="a repeated step of the environment",
                )
            except (OverrunError, DataError) as cause:
                raise BranchRefused(str(cause)) from cause
            if not _is_same(again, before):
                raise BranchRefused(f"the environment answers turn {action.turn} otherwise than it did")
        if point.state_key is not None and _state_key(env) != point.state_key:
            raise BranchRefused("the environment answers as it did, and is in another state")
        self.env_s += time.monotonic() - started
        for name, value in point.state.items():
            setattr(self, name, copy.copy(value))
        self.trajectory = point.trajectory.prefix(len(point.trajectory.response_ids))
        self.steps = list(point.steps)
        self.first_log_probs = list(point.first_log_probs)
        # Counts of the parent are not copied.
        self.info["branched"], self.info["branch_refused"] = 1, 0
        self.info["shared_tokens"] = self.trajectory.num_model_tokens

    async def _step_env(self, env: Env, action: Action) -> Observation:
        observation = await super()._step_env(env, action)
        self.steps.append((action, observation))
        return observation

    async def _append_observation(self, observation: Observation) -> None:
        await super()._append_observation(observation)
        has_result = any(message.role == "tool" for message in observation.messages)
        if has_result and self.siblings.num_waiting and not self.rows and not (self.side_rows or self.conversations):
            # The next turn: `_turn` is incremented after this returns.
            state = {name: copy.copy(getattr(self, name)) for name in _STATE} | {"_turn": self._turn + 1}
            self._mark = _Mark(length=len(self.trajectory.response_ids), state=state)

    async def _sample_tokens(self, max_tokens: int) -> Completion:
        completion = await super()._sample_tokens(max_tokens)
        mark, self._mark = self._mark, None
        num_compared = self.siblings.branching.entropy_tokens
        if completion.log_probs is None:
            return completion
        if not self.first_log_probs:
            self.first_log_probs = list(completion.log_probs[:num_compared])
        # With forced text, the turn's first tokens were not sampled, so its entropy is not comparable.
        elif mark is not None and len(self.trajectory.response_ids) == mark.length + len(completion.token_ids):
            rise = entropy_rise(
                self.first_log_probs, completion.log_probs, vocab_size=self.vocab_size, max_tokens=num_compared
            )
            self._offer_branches(mark, count=self.siblings.num_branches(rise=rise))
        return completion

    def _offer_branches(self, mark: _Mark, *, count: int) -> None:
        if not count:
            return
        self._num_given = mark.length
        point = BranchPoint(
            trajectory=self.trajectory.prefix(mark.length),
            shared_ids=self.shared_ids(mark.length),
            steps=tuple(self.steps),
            state=mark.state,
            state_key=self.states.get(self._turn),
            first_log_probs=self.first_log_probs,
        )
        for _ in range(count):
            self.siblings.begin(point)


_groups: dict[str, Siblings] = {}


@contextmanager
def _members_of(group: str, branching: Branching) -> Iterator[Siblings]:
    """Adds a member to its group; the group is removed when all have left."""
    siblings = _groups.setdefault(group, Siblings(branching, seed=group))
    siblings.num_members += 1
    try:
        yield siblings
    finally:
        siblings.num_members -= 1
        if not siblings.num_members:
            del _groups[group]


def _shared_ids(episode: Episode, attempts: Sequence[BranchingAttempt]) -> list[list[int]]:
    ids = [[NOT_SHARED] * len(row.response_ids) for row in episode.trajectories]
    first = episode.num_side_rows
    if not episode.is_void:
        (attempt,) = (attempt for attempt in attempts if attempt.first_row is episode.trajectories[first])
        ids[first] = attempt.shared_ids(len(ids[first]))
    return ids


async def _repeat_step(env: Env, action: Action) -> Observation:
    with boundary(EnvError, "a repeated step of the environment"):
        return await env.step(action)


def _state_key(env: Env) -> str | None:
    keyed = optional(env, HasStateKey)
    with boundary(EnvError, "the environment's state_key"):
        return None if keyed is None else keyed.state_key()


def _is_same(again: Observation, before: Observation) -> bool:
    """Returns whether two observations are equal for policy and trainer, apart from durations."""
    if not isinstance(again, Observation):
        return False

    def seen(observation: Observation) -> tuple[Any, ...]:
        messages = [replace(message, elapsed_s=0.0) for message in observation.messages]
        return messages, observation.reward, observation.stop

    return seen(again) == seen(before)
