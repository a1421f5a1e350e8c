"""Comparison of repeated episodes: equal turns must get equal observations and rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.episode.records.episode import Episode

NUM_PLAYS = 5
_TOLERANCE = 1e-9


def replay_problem(episodes: Sequence[Episode]) -> str:
    """Returns the first difference between episodes of one row with one script, or "" if they agree.

    Compares stop reason, outcome, reward parts, turn rewards, and observations without durations. Numbers may differ by
    1e-9. For void episodes, only their number is compared.
    """
    if len({episode.is_void for episode in episodes}) > 1:
        first = next(episode for episode in episodes if episode.is_void)
        count = sum(episode.is_void for episode in episodes)
        return f"{count} of {len(episodes)} runs failed ({first.stop_reason.value}), got {first.error}"
    if episodes[0].is_void:
        return ""
    for name, values in _collect_numbers(episodes).items():
        if max(values) - min(values) > _TOLERANCE:
            return f"{name} differs between runs, got {', '.join(f'{value:g}' for value in values)}"
    reasons = [episode.stop_reason.value for episode in episodes]
    if len(set(reasons)) > 1:
        return f"the stop reason differs between runs, got {', '.join(reasons)}"
    if any(_list_observations(episode) != _list_observations(episodes[0]) for episode in episodes):
        return "repeated turns got different observations"
    return ""


def _collect_numbers(episodes: Sequence[Episode]) -> Mapping[str, list[float]]:
    """Returns name -> the value of each run; a missing part counts as 0."""
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


def _list_observations(episode: Episode) -> list[Any]:
    # Durations of tools vary.
    return [replace(message, elapsed_s=0.0) for message in episode.messages if message.role != "assistant"]
