"""A training row of an episode, as verl stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field, SkipValidation
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_agentic.episode.records.episode_log import EpisodeLog
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.score import Score
from verl_agentic.rewards.verl_result import PENDING, PLACE, RowPlace, read_score, row_numbers, score_tokens
from verl_agentic.verl.rollout import external_sessions


class EnvAgentOutput(AgentLoopOutput):
    """verl's output of one training row, with a reward per token and the turn of every token."""

    # As long as the row, and ours already: pydantic would go over every token.
    token_rewards: SkipValidation[list[float]] = Field(default_factory=list, exclude=True)
    turn_ids: SkipValidation[list[int]] = Field(default_factory=list, exclude=True)
    shared_ids: list[int] | None = Field(default=None, exclude=True)
    """Ids that mark the tokens which siblings share; stored where rollouts may branch."""

    is_external: bool | None = Field(default=None, exclude=True)
    """Whether a script wrote it; stored where some sessions are external."""

    place: RowPlace = Field(default="last", exclude=True)
    """Place of the row in its episode."""
    row: int = Field(default=0, exclude=True)
    """Its number in its episode."""

    numbers: SkipValidation[dict[str, float]] = Field(default_factory=dict, exclude=True)
    """The loop's own numbers, which a score updates."""
    sample: SkipValidation[Sample | None] = Field(default=None, exclude=True)
    """The record of the episode for a rubric or a reward function; None if the environment scores."""
    scored: SkipValidation[Score | None] = Field(default=None, exclude=True)
    """Score by the rubric; None if another one scores."""
    pending: SkipValidation[Mapping[str, Any] | None] = Field(default=None, exclude=True)
    """Data for the score of the group; None if the score is complete."""
    env_score: dict[str, float] | None = Field(default=None, exclude=True)
    """Score from the environment; None if the environment did not score."""

    log: EpisodeLog | None = Field(default=None, exclude=True)
    """Takes the rows of the episode as they are stored; None where nothing is logged."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the columns that are stored; the same ones for every row."""
        columns = super().as_dict()
        extra = columns["extra_fields"]
        rewards, turn_ids, place = self.token_rewards, self.turn_ids, self.place
        numbers, scored = self.numbers, self.scored
        extra |= {PENDING: None, PLACE: place}
        score: Mapping[str, float] | None = None if self.sample is not None else self.env_score
        void: str | None = None
        if scored is None and self.sample is not None and self.reward_score is not None:  # by a reward function
            scored = read_score(extra["reward_extra_info"], total=self.reward_score)
        if scored is not None:
            paid = score_tokens(scored, turn_ids=turn_ids, mask=self.response_mask, place=place)
            rewards = [a + b for a, b in zip(rewards, paid, strict=True)]
            void = scored.void
            if void is not None:
                columns["response_mask"] = torch.zeros_like(columns["response_mask"])
                extra["error"], rewards = void, [0.0] * len(rewards)
            score_numbers = row_numbers(scored)
            numbers = {**numbers, **score_numbers}
            extra |= {PENDING: self.pending if place == "last" else None, "reward_parts": {}}
            # What a group's components will say of it is not known yet.
            score = {**score_numbers, "score": scored.total} if self.pending is None else None
        if self.log is not None:
            self.log.add(self.row, mask=columns["response_mask"].numpy(), rewards=rewards, void=void)
            if place == "last":
                self.log.finish(numbers=numbers, score=score, acc=None if score is None else numbers["acc"])
        extra["reward_extra_info"] = numbers
        columns["rm_scores"] = torch.from_numpy(np.array(rewards, dtype=np.float32))
        columns["turn_ids"] = torch.from_numpy(np.array(turn_ids, dtype=np.int64))
        if self.shared_ids is not None:
            columns["shared_ids"] = torch.tensor(self.shared_ids, dtype=torch.int64)
        if self.is_external is not None:
            columns[external_sessions.COLUMN] = torch.tensor(int(self.is_external))
        return columns
