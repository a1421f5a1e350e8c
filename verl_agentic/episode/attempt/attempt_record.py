"""The record of an attempt: conversation, tokens, rewards and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, Message, StopReason, TurnLimits
from verl_agentic.episode.attempt.call_choice import CallConstraint
from verl_agentic.episode.attempt.episode_setup import EpisodeSetup
from verl_agentic.episode.codec.codec import Schema


@dataclass(kw_only=True)
class AttemptRecord:
    """The conversation, tokens, rewards and times of an attempt so far."""

    setup: EpisodeSetup
    row: EnvRow
    request_id: str
    guidance: str = ""
    """Guidance in the prompt about an earlier failed attempt."""
    side_rows: list[Trajectory] = field(default_factory=list)
    """Training rows of sub-agents."""
    rows: list[Trajectory] = field(default_factory=list)
    """Finished training rows."""
    trajectory: Trajectory = field(default_factory=lambda: Trajectory(prompt_ids=[]))
    """The current row."""
    messages: list[Message] = field(default_factory=list)
    """The whole conversation."""
    actions: list[Action] = field(default_factory=list)
    turn_rewards: dict[int, float] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    """Turn -> the environment's key of the state in which it starts."""
    info: Counter[str] = field(default_factory=Counter)
    generate_s: float = 0.0
    env_s: float = 0.0
    min_weights_version: int | None = None
    max_weights_version: int | None = None
    error: str | None = None
    """Error message, if a failure ended the turns."""
    agent: str = ""
    """Role of the sub-agent; empty for the agent of the episode."""
    label: str = ""
    """Label of its turns in the episode's timeline; empty for the agent's own."""
    num_sampled: int = 0
    """Number of sampled tokens, sub-agents included."""
    prompt: tuple[Message, ...] = ()
    stop: StopReason | None = None
    """Reason, if a conversation is over."""
    constraint: CallConstraint | None = None
    _context: list[Message] = field(default_factory=list)
    """The conversation as the policy sees it in this row."""
    _tools: Sequence[Schema] = ()
    """The tools in the prompt of this row."""
    _announced: Sequence[Schema] | None = None
    """The tools that the policy can call now, if they have changed since this row began."""
    _offered: Sequence[Schema] = ()
    """The tools that the environment had when it was asked last."""
    tool_names: Sequence[str] = ()
    _turn: int = 0
    _last_turn: StopReason | None = None
    """Reason, if the policy was told that this turn is the last."""
    _turn_limits: TurnLimits = field(default_factory=TurnLimits)
    """Limits of the environment for the next turn."""

    def transcript(self, stop: StopReason) -> Transcript:
        """Returns the transcript for scorers."""
        return Transcript(messages=tuple(self.messages), actions=tuple(self.actions), stop_reason=stop)

    def finish(self, *, is_void: bool, filler_id: int) -> tuple[Trajectory, ...]:
        """Returns the training rows: each ends on a sampled token, or is void."""
        if any(self.trajectory.response_mask) or not self.rows:
            self.rows.append(self.trajectory)  # else: shortened, and nothing was sampled since
        for row in self.rows:
            row.agent = self.agent
        rows = (*self.side_rows, *self.rows)
        for row in rows:
            if is_void or not any(row.response_mask):
                row.void(filler_id=filler_id)
            else:
                row.trim_context()
            row.check()
        return rows
