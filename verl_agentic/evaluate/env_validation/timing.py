"""Times of environments to start, step and close, and their number of processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from verl_agentic.base.env import Env, EnvFactory, EnvRow, Transcript
from verl_agentic.base.types import Action, Message, Observation, Reward, Tool


class Stopwatch:
    """Measures the environments of a factory."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"start": [], "step": [], "close": []}
        self.child_processes = 0

    def timed(self, make_env: EnvFactory) -> EnvFactory:
        """Returns a factory whose environments are timed."""
        return lambda row: _TimedEnv(make_env(row), self)

    def counted(self, make_env: EnvFactory) -> EnvFactory:
        """Returns a factory that counts the child processes whenever it makes an environment."""

        def make(row: EnvRow) -> Env:
            import psutil

            self.child_processes = max(self.child_processes, len(psutil.Process().children(recursive=True)))
            return make_env(row)

        return make

    def figures(self) -> dict[str, float]:
        """Returns median and 95th percentile of each kind, in seconds, and the maximum number of child processes."""
        figures = {"child_processes": float(self.child_processes)}
        for kind, values in self.seconds.items():
            if values:
                ordered = sorted(values)
                figures[f"{kind}_s_median"] = ordered[len(ordered) // 2]
                figures[f"{kind}_s_p95"] = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
        return figures

    @contextlib.contextmanager
    def running(self, kind: str) -> Iterator[None]:
        """Times the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind].append(time.perf_counter() - started)


class _TimedEnv:
    """An environment that is timed (`env.Env`)."""

    def __init__(self, env: Env, stopwatch: Stopwatch) -> None:
        self._env, self._stopwatch = env, stopwatch

    @property
    def tools(self) -> Sequence[Tool]:
        return self._env.tools

    async def start(self) -> tuple[Message, ...]:
        with self._stopwatch.running("start"):
            return await self._env.start()

    async def step(self, action: Action) -> Observation:
        with self._stopwatch.running("step"):
            return await self._env.step(action)

    async def score(self, transcript: Transcript) -> Reward:
        return await self._env.score(transcript)

    async def close(self) -> None:
        with self._stopwatch.running("close"):
            await self._env.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
