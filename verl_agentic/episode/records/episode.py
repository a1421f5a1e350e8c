"""The record of a finished episode, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from verl_agentic.base.env import Transcript
from verl_agentic.base.metric import Metric
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import CALL_ERRORS, VOID_REASONS, Action, Message, Reward, StopReason
from verl_agentic.episode.records.counted_signs import count_signs
from verl_agentic.episode.trace.call_statistics import call_statistics, tools_called
from verl_agentic.episode.trace.timeline import Span
from verl_agentic.rewards.sample import Turn, to_turns

ErrorKind = Literal["env", "sandbox", "policy", "scoring"]
# Counts over the episode, with the same keys for every episode.
_COUNTED = (
    "tools_offered",
    "tool_calls",
    "tool_errors",
    *(f"call_error/{kind}" for kind in CALL_ERRORS),
    "repaired_calls",
    "clipped_observations",
    "neutralised_markers",
    "final_notices",
    "summaries",
    "forced_tokens",
    "sub_agents",
    "guided",
    "first_outcome",
    "branched",
    "branch_refused",
    "shared_tokens",
)
_ERRORS = [(f"error/{kind}", kind) for kind in get_args(ErrorKind)]
_STOPS = [(f"stop/{reason.value}", reason) for reason in StopReason]
_ALL = "episodes of the policy, void ones included"
_VALID = "episodes of the policy that are not void"
METRICS = (
    Metric(name="episode/episodes", unit="episodes", per="step", rows=_ALL, join="sum"),
    Metric(name="episode/acc", unit="outcome, 0 to 1", per="episode", rows=_VALID),
    Metric(name="episode/score", unit="reward", per="episode", rows=_VALID),
    Metric(name="episode/reward/*", unit="reward of a part", per="episode", rows=_VALID),
    Metric(name="episode/weighted/*", unit="reward of a part, weighted", per="episode", rows=_VALID),
    Metric(name="episode/solved/*", unit="held-out outcome, 0 to 1", per="episode", rows=_VALID),
    Metric(name="episode/void", unit="share", per="episode", rows=_ALL),
    Metric(name="episode/external", unit="share", per="episode", rows="all episodes, external ones included"),
    Metric(name="episode/stop/*", unit="share", per="episode", rows=_ALL),
    Metric(name="episode/error/*", unit="share", per="episode", rows=_ALL),
    Metric(name="episode/calls/*", unit="calls of a tool", per="episode", rows=_VALID, is_0_if_absent=True),
    Metric(name="episode/tool_top_share", unit="share of calls", per="call", rows=_VALID),
    Metric(name="episode/tool_entropy", unit="entropy over its maximum", per="update", rows=_VALID),
    Metric(name="episode/temperature", unit="temperature", per="step", rows="training", join="last"),
    Metric(name="episode/*_s", unit="seconds", per="episode", rows=_ALL),
    Metric(name="episode/*_tokens", unit="tokens", per="episode", rows=_ALL),
    Metric(name="episode/used_tool", unit="share", per="episode", rows=_ALL),
    Metric(name="episode/repeated_ngrams", unit="share of 20-grams", per="episode", rows=_ALL),
    Metric(name="episode/hacking/any", unit="share", per="episode", rows=_ALL),
    Metric(name="episode/*", unit="count, or a number of the environment", per="episode", rows=_ALL),
)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A finished episode."""

    trajectories: tuple[Trajectory, ...]
    """The training rows: those of sub-agents, then the agent's own in order. At least one; none is empty."""
    num_side_rows: int
    """Number of rows of sub-agents."""
    stop_reason: StopReason
    messages: tuple[Message, ...]
    """The conversation, prompt included."""
    num_prompt_messages: int
    actions: tuple[Action, ...]
    reward: Reward
    turn_rewards: Mapping[int, float]
    states: Mapping[int, str] = field(default_factory=dict)
    """Turn -> the environment's key of the state in which it started."""
    info: Mapping[str, float]
    """Counts of the environment's observations, summed over the episode."""
    error: str | None
    """Error message, if the episode is void or ended by the policy's fault."""
    error_kind: ErrorKind | None
    """Kind of the failure; None without a failure or at a timeout."""
    traceback: str = ""
    """Traceback of the failure's cause, if an exception was the failure."""
    retries: int
    """Number of retries after failures."""
    generate_s: float
    """Time spent waiting for the policy, in seconds."""
    env_s: float
    """Time spent waiting for the environment, in seconds."""
    spans: tuple[Span, ...] = ()
    """Timeline of all attempts, in the order of starts. Spans labelled `sub_agent` lie inside the delegating tool call.
    In an episode without retries, the other spans of kind `generate` sum to `generate_s`, and those of kinds `start`
    and `step` to `env_s`."""
    min_weights_version: int | None
    max_weights_version: int | None

    @property
    def is_void(self) -> bool:
        """True if the episode is void."""
        return self.stop_reason in VOID_REASONS

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The agent's turns for scorers, without token counts and rewards."""
        return to_turns(self.messages[self.num_prompt_messages :], self.actions)

    @cached_property
    def _hacking_signs(self) -> dict[str, float]:
        transcript = Transcript(messages=self.messages, actions=self.actions, stop_reason=self.stop_reason)
        prompt, turns = self.messages[: self.num_prompt_messages], () if self.is_void else self.turns
        reported = {} if self.is_void else self.reward.info
        return count_signs(prompt, turns, transcript.final_answer, reported=reported)

    def token_rewards(self, *, has_rubric: bool = False) -> list[list[float]]:
        """Returns `[R]` rewards per trajectory, with the outcome in the last one; all zero if void.

        With a rubric, the outcome is left to the rubric.
        """
        rewards = []
        for index, trajectory in enumerate(self.trajectories):
            is_last = index == len(self.trajectories) - 1
            turns = set(trajectory.turn_ids) if self.turn_rewards and index >= self.num_side_rows else set()
            rewards.append(
                trajectory.token_rewards(
                    outcome=self.reward.total if is_last and not has_rubric else 0.0,
                    turn_rewards={t: r for t, r in self.turn_rewards.items() if t in turns},
                )
            )
        return rewards

    def tools_called(self) -> dict[str, int]:
        """Returns the number of executed calls per tool."""
        return tools_called(self.turns)

    def numbers(self) -> dict[str, float]:
        """Returns the episode as scalars under the same keys for every episode.

        `acc` is the raw outcome. `used_tool` is 1 if a tool answered a call without an error. `stop/<reason>` are
        one-hot, so their means are shares that sum to 1.
        """
        counted = {name: float(self.info.get(name, 0.0)) for name in _COUNTED}
        return {
            "acc": self.reward.outcome,
            "void": float(self.is_void),
            "num_turns": float(len(self.actions)),
            "model_tokens": float(sum(t.num_model_tokens for t in self.trajectories)),
            "response_tokens": float(sum(len(t.response_ids) for t in self.trajectories)),
            **counted,
            **call_statistics(() if self.is_void else self.turns),
            **self._hacking_signs,
            "used_tool": float(counted["tool_calls"] > counted["tool_errors"]),
            "rows": float(len(self.trajectories)),
            "retries": float(self.retries),
            "generate_s": self.generate_s,
            "env_s": self.env_s,
            **{name: float(kind == self.error_kind) for name, kind in _ERRORS},
            **{name: float(reason is self.stop_reason) for name, reason in _STOPS},
        }
