"""Converts episodes to the samples of reward components."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.episode.records.episode import Episode
from verl_agentic.rewards.sample import Sample, to_turns


def to_sample(episode: Episode, row: EnvRow, *, id: str) -> Sample:
    """Returns the sample of an episode that is not void.

    Args:
        episode: text of its sub-agents is left out.
        id: names it in errors and logs.
    """
    num_tokens: dict[int, int] = defaultdict(int)
    log_probs: dict[int, float] = defaultdict(float)
    own_trajectories = episode.trajectories[episode.num_side_rows :]
    home = _map_turns(episode)
    for trajectory in own_trajectories:
        for segment in trajectory.segments():
            mask = trajectory.response_mask[segment.start : segment.end]
            turn, length = home(segment.turn), sum(mask)
            num_tokens[turn] += length
            if length:  # log-probs are 0 where the mask is
                log_probs[turn] += sum(trajectory.log_probs[segment.start : segment.end])
    transcript = Transcript(messages=episode.messages, actions=episode.actions, stop_reason=episode.stop_reason)
    has_log_probs = all(trajectory.has_log_probs for trajectory in own_trajectories)
    start = episode.num_prompt_messages
    return Sample(
        id=id,
        prompt=episode.messages[:start],
        turns=to_turns(
            episode.messages[start:],
            episode.actions,
            num_tokens=num_tokens,
            mean_log_probs={t: log_probs[t] / n for t, n in num_tokens.items() if n} if has_log_probs else None,
            rewards=episode.turn_rewards,
        ),
        final_answer=transcript.final_answer,
        stop_reason=episode.stop_reason,
        ground_truth=row.ground_truth,
        data_source=row.data_source,
        extra=row.extra,
        env=episode.reward if episode.reward.is_scored else None,
    )


def _map_turns(episode: Episode) -> Callable[[int], int]:
    """Returns a function from a turn to its action; tokens of a summary count for the previous action."""
    turns = sorted(action.turn for action in episode.actions)
    return lambda turn: turns[max(0, bisect_right(turns, turn) - 1)] if turns else turn
