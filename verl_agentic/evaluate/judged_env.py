"""Environments without a verifier, whose episodes judges score: for self-rewarding and other preferences of models.

Paper: https://arxiv.org/abs/2401.10020 (Self-Rewarding Language Models, sections 2.2 and 2.3: the model judges its own
samples; the best and the worst one become a pair)

Deviations: the judges' items are yours, in place of the paper's five points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl_agentic.base.env import Env, EnvFactory, EnvRow, Transcript
from verl_agentic.base.errors import ScoringError
from verl_agentic.base.types import Action, Message, Observation, Reward, Tool
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import rule
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.sample import Sample, to_turns


def judged(make_env: EnvFactory, options: JudgeOptions) -> EnvFactory:
    """Returns a factory of environments whose outcome is the judges' verdict where the environment leaves it open."""
    return lambda row: JudgedEnv(make_env(row), row, options)


class JudgedEnv:
    """An environment with judges for the episodes that it does not score. A verifier always comes first."""

    def __init__(self, env: Env, row: EnvRow, options: JudgeOptions) -> None:
        self._env, self._row, self._options = env, row, options
        self._prompt: Sequence[Message] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def start(self) -> tuple[Message, ...]:
        """Starts the environment."""
        self._prompt = await self._env.start()
        return tuple(self._prompt)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of the environment."""
        return self._env.tools

    async def step(self, action: Action) -> Observation:
        """Carries out a turn."""
        return await self._env.step(action)

    async def close(self) -> None:
        """Closes the environment."""
        await self._env.close()

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the environment's reward, or else the verdict; 0 for an episode without an answer and a call.

        Raises:
            ScoringError: the judges gave no verdict. The episode is void then, and repeated with the command.
        """
        reward = await self._env.score(transcript)
        if reward.is_scored:
            return reward
        start = self._find_first_turn(transcript)
        sample = Sample(
            id="episode",
            prompt=transcript.messages[:start],
            turns=to_turns(transcript.messages[start:], transcript.actions),
            final_answer=transcript.final_answer,
            stop_reason=transcript.stop_reason,
            ground_truth=self._row.ground_truth,
        )
        if is_silent(sample):
            return Reward(0.0, details=reward.details)
        ruling = await rule(self._options.blocks(sample), self._options)
        if ruling.value is None:
            reason = ruling.failures[0] if ruling.failures else "no majority"
            raise ScoringError(f"the judges gave no verdict: {reason}; repeat the command")
        return Reward(ruling.value, details=reward.details)

    def _find_first_turn(self, transcript: Transcript) -> int:
        """Returns the number of messages before the policy's first turn; an agent's own conversation has others than
        those of `start`."""
        messages = transcript.messages
        if messages[: len(self._prompt)] == tuple(self._prompt) or not transcript.actions:
            return len(self._prompt)
        return messages.index(transcript.actions[0].to_message())
