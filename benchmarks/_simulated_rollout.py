"""A rollout that plays prompts in simulated time, and an in-memory stand-in of TransferQueue that holds its rows.

Nobody sleeps: the clock jumps from poll to poll, over those between which no group changes its state.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import transfer_queue
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack
from verl.trainer.ppo.v1 import replay_buffer

from verl_agentic.verl.replay_buffer import gated_buffer


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Difficulty of the tasks: share and Beta distribution of the rates of success, for each part."""

    parts: tuple[tuple[float, float, float], ...]

    def draw(self, rng: np.random.Generator) -> float:
        """Returns the rate of success of a task."""
        shares = [share for share, _, _ in self.parts]
        _, a, b = self.parts[rng.choice(len(shares), p=shares)]
        return float(rng.beta(a, b))


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Simulated engine that runs the episodes."""

    slots: int
    """Episodes that are played at the same time."""
    group_size: int
    mean_tokens: float
    """Mean of the log-normal distribution of response lengths."""
    sigma: float
    """Standard deviation of the logarithm of the lengths."""
    tokens_per_s: float
    """Speed of every slot."""


class Rollout:
    """Plays prompts; the i-th one is the same task with the same episodes for everybody with the same seed."""

    def __init__(self, engine: Engine, mix: Mix, *, seed: int) -> None:
        """Makes one at time 0."""
        self.engine, self.mix, self.seed = engine, mix, seed
        self.now_s = 0.0
        self.step = 1
        self.num_tokens = 0
        self.num_groups = 0
        self._free = [0.0] * engine.slots
        """When each slot is free."""
        self._ends: list[tuple[float, str]] = []
        """Groups that are played, by the time at which their last episode ends."""
        self._tags: dict[str, dict[str, Any]] = {}
        self._extra: dict[str, dict[str, Any]] = {}

    def submit(self, num_prompts: int) -> int:
        """Hands prompts out, as verl's trainer does."""
        for _ in range(num_prompts):
            uid = f"p{self.num_groups}"
            rng = np.random.default_rng([self.seed, self.num_groups])
            self.num_groups += 1
            rate = self.mix.draw(rng)
            engine = self.engine
            mu = math.log(engine.mean_tokens) - engine.sigma**2 / 2
            lengths = rng.lognormal(mu, engine.sigma, engine.group_size).astype(int) + 1
            outcomes = (rng.random(engine.group_size) < rate).astype(float)
            self._tags[uid] = {"is_prompt": True, "status": "running", "global_steps": self.step}
            ends = [self._play(int(length)) for length in lengths]
            for place, (length, outcome) in enumerate(zip(lengths, outcomes, strict=True)):
                self._put_row(f"{uid}_{place}_0", int(length), float(outcome))
            heapq.heappush(self._ends, (max(ends), uid))
        return num_prompts

    def _play(self, num_tokens: int) -> float:
        begins = max(self.now_s, heapq.heappop(self._free))
        heapq.heappush(self._free, begins + num_tokens / self.engine.tokens_per_s)
        self.num_tokens += num_tokens
        return begins + num_tokens / self.engine.tokens_per_s

    def _put_row(self, key: str, length: int, outcome: float) -> None:
        version = self.step - 1
        self._tags[key] = {
            "response_len": length,
            "global_steps": self.step,
            "min_global_steps": version,
            "max_global_steps": version,
        }
        self._extra[key] = {"reward_extra_info": {"acc": outcome}}

    # In the place of the module `time`, for the buffers.

    def time(self) -> float:
        """Returns the simulated time."""
        return self.now_s

    perf_counter = time

    def sleep(self, seconds: float) -> None:
        """Goes on to the first poll at which a group has ended; without any, to the next one."""
        polls = math.ceil((self._ends[0][0] - self.now_s) / seconds) if self._ends else 1
        self.now_s += seconds * max(1, polls)
        while self._ends and self._ends[0][0] <= self.now_s:
            _, uid = heapq.heappop(self._ends)
            self._tags[uid]["status"] = "finished"

    # In the place of TransferQueue.

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """Returns all tags."""
        return {"train": self._tags}

    def kv_batch_get(self, *, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> TensorDict:
        """Returns the extra fields of rows."""
        extra_fields = NonTensorStack(*(self._extra[key] for key in keys))  # pyright: ignore[reportAbstractUsage]
        return TensorDict({"extra_fields": extra_fields}, batch_size=[len(keys)])

    def kv_clear(self, *, keys: Sequence[str], partition_id: str) -> None:
        """Forgets rows and prompts."""
        for key in keys:
            self._tags.pop(key, None)
            self._extra.pop(key, None)


@contextmanager
def in_place(rollout: Rollout) -> Iterator[Rollout]:
    """Puts it in the place of TransferQueue and of the clock, for verl's buffers and ours."""
    names = ("kv_list", "kv_batch_get", "kv_clear")
    before = {name: getattr(transfer_queue, name) for name in names}
    clock = vars(replay_buffer)["time"]
    try:
        for name in names:
            setattr(transfer_queue, name, getattr(rollout, name))
        for module in (replay_buffer, gated_buffer):
            module.time = rollout  # pyright: ignore[reportAttributeAccessIssue]
        yield rollout
    finally:
        for name, function in before.items():
            setattr(transfer_queue, name, function)
        for module in (replay_buffer, gated_buffer):
            module.time = clock  # pyright: ignore[reportAttributeAccessIssue]
