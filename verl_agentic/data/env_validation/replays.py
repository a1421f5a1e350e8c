"""Compares the plays of one row with one script: an environment must answer and reward them alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.agent_loops.records.episode import Episode

NUM_PLAYS = 5
_TOLERANCE = 1e-9


def replay_problem(episodes: Sequence[Episode]) -> str:
    """Returns the first difference between the plays of one row with one script, or "" if they agree.

    Compared are the stop reason, the outcome, the reward parts, the turn rewards, and every observation without its
    duration. Numbers may differ by 1e-9. Void episodes are other checks' findings, so only their number is compared.
    """
    if len({episode.is_void for episode in episodes}) > 1:
        first = next(episode for episode in episodes if episode.is_void)
        count = sum(episode.is_void for episode in episodes)
        return f"{count} of {len(episodes)} plays failed ({first.stop_reason.value}), got {first.error}"
    if episodes[0].is_void:
        return ""
    for name, values in _numbers(episodes).items():
        if max(values) - min(values) > _TOLERANCE:
            return f"{name} differs between plays, got {', '.join(f'{value:g}' for value in values)}"
    reasons = [episode.stop_reason.value for episode in episodes]
    if len(set(reasons)) > 1:
        return f"the stop reason differs between plays, got {', '.join(reasons)}"
    if any(_observed(episode) != _observed(episodes[0]) for episode in episodes):
        return "the same turns were answered differently when played again"
    return ""


def _numbers(episodes: Sequence[Episode]) -> Mapping[str, list[float]]:
    """Returns name -> the value of each play; a part that a play lacks counts as 0."""
    played = [
        {
            "outcome": episode.reward.outcome,
            **{f"part {name!r}": value for name, value in episode.reward.parts.items()},
            **{f"reward of turn {turn}": value for turn, value in episode.turn_rewards.items()},
        }
        for episode in episodes
    ]
    names = dict.fromkeys(name for numbers in played for name in numbers)
    return {name: [numbers.get(name, 0.0) for numbers in played] for name in names}


def _observed(episode: Episode) -> list[Any]:
    # How long a tool took differs from time to time.
    return [replace(message, elapsed_s=0.0) for message in episode.messages if message.role != "assistant"]
