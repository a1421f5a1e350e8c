"""Runs a model folder in an environment in this process, with the loop of training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvFactory, EnvRow
from verl_agentic.cpu.engine_policy import EnginePolicy
from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import SamplingParams
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.circuit_breaker import CircuitBreaker
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.collect import run_episodes
from verl_agentic.episode.records.episode import Episode
from verl_agentic.evaluate.evaluation_log import EpisodeRows, EvaluationLog
from verl_agentic.evaluate.evaluation_run import EvaluationAttempt, PolicyBackend, attempt_runner, evaluate
from verl_agentic.evaluate.policies.tree_search import TreeSettings
from verl_agentic.evaluate.policy_backends import tree_backends

_MAX_CONCURRENT = 64


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A model with its engine, codec and environment."""

    model_path: Path
    tokenizer: Any
    codec: Codec
    make_env: EnvFactory
    limits: EpisodeLimits
    device: str = "cpu"
    dtype: str = "float32"
    """Where the engine computes, and in which type, as torch names them."""

    def run(
        self,
        rows: Sequence[EnvRow],
        *,
        temperature: float,
        seed: int = 0,
        on_episode: Callable[[Episode], None] = lambda episode: None,
    ) -> list[Episode]:
        """Runs every row once and returns the episodes in order; equal seeds give equal episodes.

        Args:
            temperature: 0 is greedy.
            seed: of the sampling.
            on_episode: called as each episode ends.
        """
        return asyncio.run(self._run_rows(rows, temperature, seed, on_episode))

    def sample(
        self,
        plan: Sequence[EvaluationAttempt],
        *,
        log: EvaluationLog,
        temperature: float,
        seed: int = 0,
        tree: TreeSettings | None = None,
        on_episode: Callable[[EpisodeRows], None] = lambda rows: None,
    ) -> list[EpisodeRows]:
        """Runs the attempts that the log lacks, and returns the rows of all; see `evaluation_run.evaluate`.

        With `tree`, the attempts at a task search a tree.
        """
        return asyncio.run(self._sample_attempts(plan, log, temperature, seed, tree, on_episode))

    async def _sample_attempts(
        self,
        plan: Sequence[EvaluationAttempt],
        log: EvaluationLog,
        temperature: float,
        seed: int,
        tree: TreeSettings | None,
        on_episode: Callable[[EpisodeRows], None],
    ) -> list[EpisodeRows]:
        width, make_tree_backend = (1, None) if tree is None else (tree.width, tree_backends(tree))

        def backend_for(attempt: EvaluationAttempt) -> PolicyBackend:
            first_seed = (seed * len(plan) + attempt.number) * width
            setups = [self._make_setup(engine, temperature, first_seed + number) for number in range(width)]
            backends = [PolicyBackend(setup=setup, usage={}) for setup in setups]
            return backends[0] if make_tree_backend is None else make_tree_backend(attempt, backends)

        engine = InferenceEngine.from_pretrained(self.model_path, device=self.device, dtype=self.dtype)
        try:
            return await evaluate(
                plan,
                run_attempt=attempt_runner(self.make_env, backend_for),
                log=log,
                max_concurrent=_MAX_CONCURRENT,
                breaker=CircuitBreaker(min_episodes=16),
                on_episode=on_episode,
            )
        finally:
            await engine.close()

    async def _run_rows(
        self, rows: Sequence[EnvRow], temperature: float, seed: int, on_episode: Callable[[Episode], None]
    ) -> list[Episode]:
        engine = InferenceEngine.from_pretrained(self.model_path, device=self.device, dtype=self.dtype)
        try:
            return await run_episodes(
                rows,
                make_env=self.make_env,
                setup_for=lambda index, row: self._make_setup(engine, temperature, seed * len(rows) + index),
                on_episode=on_episode,
            )
        finally:
            await engine.close()

    def _make_setup(self, engine: InferenceEngine, temperature: float, seed: int) -> EpisodeSetup:
        sampling = SamplingParams(
            temperature=temperature,
            seed=seed,
            stop=tuple(self.codec.stop_texts),
            stop_token_ids=tuple(self.codec.stop_token_ids),
        )
        policy = EnginePolicy(engine, sampling)
        return EpisodeSetup(policy=policy, codec=self.codec, tokenizer=self.tokenizer, limits=self.limits)
