"""The text audit: trained tokens must decode to the policy's text, turn by turn."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from verl_agentic.base.finding import TEXT_MISMATCH
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.episode.records.episode import Episode
from verl_agentic.log.secrets import Decode

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SHOWN_CHARS = 60
_TRAINED = re.compile(b"\x01+")


def text_breach(episode: Episode, *, decode: Decode) -> str:
    """Returns the first mismatch (row, span and reason), or empty.

    Each run of trained tokens of one turn must decode to a part of that turn's text, apart from incomplete characters
    at its ends. Turns without an action (summaries, those of sub-agents) have no known text.

    Args:
        decode: token ids to text, special tokens included.
    """
    texts = {action.turn: action.text for action in episode.actions}
    for index in range(episode.num_side_rows, len(episode.trajectories)):
        trajectory = episode.trajectories[index]
        for start, end in _iter_runs(trajectory):
            turn = trajectory.turn_ids[start]
            text = texts.get(turn)
            decoded = decode(trajectory.response_ids[start:end]).strip(_REPLACEMENT)
            if text is not None and decoded not in text:
                return (
                    f"{TEXT_MISMATCH}: row {index}, tokens {start} to {end} of turn {turn} are trained on and decode "
                    f"to {decoded[:_SHOWN_CHARS]!r}, which the policy did not write in {text[:_SHOWN_CHARS]!r}"
                )
    return ""


def _iter_runs(trajectory: Trajectory) -> Iterator[tuple[int, int]]:
    """Yields the spans `[start, end)` of contiguous tokens with mask 1 of one turn."""
    turn_ids = trajectory.turn_ids
    for run in _TRAINED.finditer(bytes(trajectory.response_mask)):
        start, stop = run.span()
        while start < stop:
            end = bisect_right(turn_ids, turn_ids[start], start, stop)
            yield start, end
            start = end
