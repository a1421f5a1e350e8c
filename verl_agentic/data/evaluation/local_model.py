"""Runs a model folder in an environment in this process, with the loop of training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.agent_loops.attempt.attempt import EpisodeSetup
from verl_agentic.agent_loops.codec.codec import Codec
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.agent_loops.policies.policy import EnginePolicy
from verl_agentic.agent_loops.records.episode import Episode
from verl_agentic.data.datasets.collect import run_episodes
from verl_agentic.env import EnvFactory, EnvRow
from verl_agentic.inference.inference_engine import InferenceEngine
from verl_agentic.inference.request import SamplingParams


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A model with its engine, codec and environment."""

    model_path: Path
    tokenizer: Any
    codec: Codec
    make_env: EnvFactory
    limits: EpisodeLimits

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
            rows: to run.
            temperature: 0 is greedy.
            seed: of the sampling.
            on_episode: called as each episode ends.
        """
        return asyncio.run(self._run(rows, temperature, seed, on_episode))

    async def _run(
        self, rows: Sequence[EnvRow], temperature: float, seed: int, on_episode: Callable[[Episode], None]
    ) -> list[Episode]:
        engine = InferenceEngine.from_pretrained(self.model_path)
        try:
            return await run_episodes(
                rows,
                make_env=self.make_env,
                setup_for=lambda index, row: EpisodeSetup(
                    policy=EnginePolicy(
                        engine,
                        SamplingParams(
                            temperature=temperature,
                            seed=seed * len(rows) + index,
                            stop=tuple(self.codec.stop_texts),
                            stop_token_ids=tuple(self.codec.stop_token_ids),
                        ),
                    ),
                    codec=self.codec,
                    tokenizer=self.tokenizer,
                    limits=self.limits,
                ),
                on_episode=on_episode,
            )
        finally:
            await engine.close()


def describe(episode: Episode, tokenizer: Any) -> dict[str, Any]:
    """Returns an episode as JSON: its numbers, its stop reason, and its texts with their authors."""
    segments = []
    for trajectory in episode.trajectories:
        segments.append({"kind": "prompt", "text": tokenizer.decode(trajectory.prompt_ids)})
        segments += [
            {"kind": s.kind.value, "text": tokenizer.decode(trajectory.response_ids[s.start : s.end])}
            for s in trajectory.segments()
        ]
    return {
        "outcome": episode.reward.outcome,
        "stop_reason": episode.stop_reason.value,
        "used_tool": episode.numbers()["used_tool"],
        "error": episode.error,
        "segments": segments,
    }
