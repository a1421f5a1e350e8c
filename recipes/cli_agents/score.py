"""The reward of an agent that has written its answer into a file."""

from __future__ import annotations

from verl_agentic import EnvRow, Transcript


def score(row: EnvRow, result: str, transcript: Transcript) -> float:
    """Returns 1 if the file has the right answer and nothing else, else 0."""
    return float(result.strip() == str(row.ground_truth))
