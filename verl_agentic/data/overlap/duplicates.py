"""Exact duplicates by key, and candidates of near duplicates by bands of MinHash signatures."""

from __future__ import annotations

import numpy as np

from verl_agentic.data.overlap.ngrams import Hashes
from verl_agentic.data.overlap.summary import Ints, are_different_tasks

_NEIGHBOURS = 8
"""Rows of a band that each row is compared with, and candidates of a row in all."""


def first_copies(keys: Hashes) -> Ints:
    """Returns for each row the first earlier row with the same task, [N]; -1 if there is none.

    A row without ground truth and hidden fields has the same task as any row with its prompt.

    Args:
        keys: [N, 3] keys of prompt, answer and words, in the order of the rows.
    """
    rows = np.arange(len(keys))
    same_both, same_prompt = _first_of(keys), _first_of(keys[:, :1])
    is_open = keys[:, 1] == 0
    first_open = np.full(len(keys), len(keys), dtype=np.int64)
    np.minimum.at(first_open, same_prompt[is_open], rows[is_open])
    first = np.minimum(same_both, first_open[same_prompt])
    first[is_open] = same_prompt[is_open]
    return np.where(first < rows, first, -1)


def exact_pairs(keys: Hashes) -> Ints:
    """Returns pairs that connect all rows with the same task, [P, 2]; arguments as for `first_copies`.

    A row without ground truth and hidden fields connects all rows with its prompt.
    """
    rows, same_prompt, is_open = np.arange(len(keys)), _first_of(keys[:, :1]), keys[:, 1] == 0
    open_of_prompt = np.full(len(keys), -1, dtype=np.int64)
    open_of_prompt[same_prompt[is_open]] = rows[is_open]
    others = np.concatenate([first_copies(keys), open_of_prompt[same_prompt]])
    return np.stack([np.tile(rows, 2), others], axis=1)[others >= 0]


def num_other_answers(keys: Hashes) -> int:
    """Returns the number of different tasks whose prompt is also that of another task."""
    tasks = np.unique(keys[keys[:, 1] != 0], axis=0)
    _, counts = np.unique(tasks[:, 0], return_counts=True)
    return int(counts[counts > 1].sum())


def near_candidates(bands: Hashes, keys: Hashes, is_excluded: np.ndarray) -> Ints:
    """Returns pairs of rows that may be near duplicates, [P, 2]: a row and an earlier one, by row and by shared bands.

    Args:
        bands: [N, B], see `ngrams.bands_of`.
        keys: [N, 3] keys of prompt, answer and words.
        is_excluded: [N] rows that are left out.
    """
    rows = np.flatnonzero((bands[:, 0] != 0) & ~is_excluded)
    pair_codes = [np.zeros(0, dtype=np.int64)]
    for band in bands.T:
        order = rows[np.argsort(band[rows], kind="stable")]
        sorted_band = band[order]
        for distance in range(1, _NEIGHBOURS + 1):
            same = np.flatnonzero(sorted_band[distance:] == sorted_band[:-distance])
            if not len(same):
                break
            pair_codes.append(order[same + distance] * len(bands) + order[same])
    codes, counts = np.unique(np.concatenate(pair_codes), return_counts=True)
    pairs = np.stack([codes // len(bands), codes % len(bands)], axis=1) if len(codes) else np.zeros((0, 2), np.int64)
    is_kept = ~are_different_tasks(keys[pairs[:, 0]], keys[pairs[:, 1]])
    pairs, counts = pairs[is_kept], counts[is_kept]
    pairs = pairs[np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))]
    _, starts, sizes = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    rank = np.arange(len(pairs)) - np.repeat(starts, sizes)
    return pairs[rank < _NEIGHBOURS]


def _first_of(keys: Hashes) -> Ints:
    """Returns for each row the first row with the same key."""
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]
