"""Rollouts of TRL's trainer for protocols that write observations into the policy's turn (`rollout_func`).

The episodes are ours, with our codec and limits, and the sampling is TRL's: the turns of all running episodes are one
batch of transformers' `generate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic import EnvRow
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.collect import run_episodes
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.verl.rollout.model_codec import load_codec


class CourseRollouts:
    """TRL's `rollout_func` for the environment of a course."""

    def __init__(self, course: Course, model: str, rows: Sequence[EnvRow]) -> None:
        """Takes the rows of the data set, whose prompts TRL passes on."""
        self._course = course
        self._tokenizer, self._codec = load_codec(model, protocol=course.protocol)
        self._rows = {_text_of(row_prompt(row)): row for row in rows}

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Returns the rows of one episode for each prompt."""
        rows = [self._rows[_text_of(prompt)] for prompt in prompts]
        policy = _LockstepPolicy(trainer, self._tokenizer, self._codec, num_running=len(rows))
        setup = EpisodeSetup(policy=policy, codec=self._codec, tokenizer=self._tokenizer, limits=self._course.limits)
        episodes = asyncio.run(
            run_episodes(
                rows,
                make_env=self._course.package.make_env,
                setup_for=lambda index, row: setup,
                on_episode=lambda episode: policy.end_episode(),
            )
        )
        # Without retries of void episodes and without resets of the context, an episode is one trajectory.
        trajectories = [episode.trajectories[-1] for episode in episodes]
        return {
            "prompt_ids": [row.prompt_ids for row in trajectories],
            "completion_ids": [row.response_ids for row in trajectories],
            "env_mask": [row.response_mask for row in trajectories],
            "logprobs": None,
            "outcome": [episode.reward.outcome for episode in episodes],
        }


class _LockstepPolicy:
    """Samples when every running episode waits for a turn, so that batches are as large as TRL's."""

    def __init__(self, trainer: Any, tokenizer: Any, codec: Any, *, num_running: int) -> None:
        self._trainer, self._tokenizer, self._codec = trainer, tokenizer, codec
        self._num_running = num_running
        self._waiting: list[tuple[list[int], int, asyncio.Future[Completion]]] = []

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Any, max_tokens: int, request_id: str
    ) -> Completion:
        """Samples one turn; see `Policy.generate`."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(prompt_ids), max_tokens, future))
        self._sample_if_all_wait()
        return await future

    def end_episode(self) -> None:
        """Notes that an episode has ended, which another turn may have waited for."""
        self._num_running -= 1
        self._sample_if_all_wait()

    def _sample_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._num_running:
            return
        waiting, self._waiting = self._waiting, []
        self._trainer.turn_options = {
            "max_new_tokens": max(max_tokens for _, max_tokens, _ in waiting),
            "stop_strings": list(self._codec.stop_texts),
            "tokenizer": self._tokenizer,
        }
        sampled, _ = self._trainer._generate_single_turn([ids for ids, *_ in waiting], None, {}, 1)
        for ids, (_, max_tokens, future) in zip(sampled, waiting, strict=True):
            future.set_result(self._cut_turn(ids, max_tokens))

    def _cut_turn(self, ids: Sequence[int], max_tokens: int) -> Completion:
        """Returns a turn up to its limit, its end token or its stop text; TRL pads it behind that."""
        for count in range(1, min(len(ids), max_tokens) + 1):
            text = self._tokenizer.decode(ids[:count])
            if ids[count - 1] in self._codec.stop_token_ids or any(stop in text for stop in self._codec.stop_texts):
                return Completion(token_ids=ids[:count], log_probs=None, finish_reason="stop")
        return Completion(token_ids=ids[:max_tokens], log_probs=None, finish_reason="length")


def row_prompt(row: EnvRow) -> list[dict[str, Any]]:
    """Returns a prompt as TRL's data sets have it."""
    return [message.to_dict() for message in row.prompt]


def _text_of(prompt: Sequence[Mapping[str, Any]]) -> str:
    return prompt[-1]["content"]
