"""The words that two rows share, for reports."""

from __future__ import annotations

import numpy as np

from verl_agentic.data.overlap.ngrams import SIZE, Hashes, grams_of, is_in
from verl_agentic.data.overlap.row_task import RowTask


def shared_span(task: RowTask, other: RowTask, *, common: Hashes) -> str:
    """Returns the longest run of words in shared grams that are not common; the whole text if it is short."""
    if len(task.words) < SIZE:
        return " ".join(task.words)
    (grams, _), (others, _) = (grams_of([side.words], [side.prompt_key]) for side in (task, other))
    is_shared = is_in(grams, np.unique(others)) & ~is_in(grams, common)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_shared, [False]])))
    if not len(edges):
        return ""
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    return " ".join(task.words[starts[longest] : ends[longest] + SIZE - 1])
