"""Hashes of 13-grams of words, and MinHash signatures of them, in numpy.

Paper: https://ieeexplore.ieee.org/document/666900 (Broder 1997, resemblance of sets of shingles)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
SIZE = 13
"""Words of a gram. A shorter text is one gram."""
_BANDS, _ROWS = 20, 6
"""Rows with a similarity of 0.8 share a band with a probability of 0.998, those of 0.4 with one of 0.08."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_random = np.random.default_rng(13)
_POWERS = _random.integers(1, 2**63, SIZE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_MASKS, _FACTORS = (_random.integers(0, 2**32, _BANDS * _ROWS, dtype=np.uint32) for _ in range(2))
_FACTORS |= np.uint32(1)


def grams_of(texts: Sequence[Sequence[str]], short: Sequence[int]) -> tuple[Hashes, NDArray[np.int64]]:
    """Returns the hashes of all grams, text after text, and their number per text.

    Args:
        texts: words of each text.
        short: hash of each text, which is its only gram if it has fewer than 13 words.
    """
    lengths = np.array([len(words) for words in texts], dtype=np.int64)
    hashed: list[int] = []
    for words in texts:
        hashed.extend(map(zlib.crc32, " ".join(words).encode("utf-8", "surrogatepass").split()))
    words_W = _mix_bits(np.array(hashed, dtype=np.uint64))
    num_starts = max(0, len(words_W) - SIZE + 1)
    grams_W = np.zeros(num_starts, dtype=np.uint64)
    for offset, power in enumerate(_POWERS):
        grams_W += words_W[offset : offset + num_starts] * power
    ends = np.cumsum(lengths)
    # Grams that begin in one text and end in the next are left out.
    left_in_text = np.repeat(ends, lengths)[:num_starts] - np.arange(num_starts)
    grams = _mix_bits(grams_W[left_in_text >= SIZE])
    counts = np.maximum(lengths - SIZE + 1, 0)
    is_short = counts == 0
    places = np.cumsum(counts)[is_short]
    grams = np.insert(grams, places, _mix_bits(np.array(short, dtype=np.uint64)[is_short]))
    return grams, np.maximum(counts, 1)


def bands_of(grams: Hashes, counts: NDArray[np.int64]) -> Hashes:
    """Returns the bands of each text's MinHash signature, [N, 20]; zeros for a text without grams."""
    bands_NB = np.zeros((len(counts), _BANDS), dtype=np.uint64)
    full = np.flatnonzero(counts)
    if len(full):
        starts = (np.cumsum(counts) - counts)[full]
        half = (grams >> np.uint64(32)).astype(np.uint32)
        for index, (mask, factor) in enumerate(zip(_MASKS, _FACTORS, strict=True)):
            least_N = np.minimum.reduceat((half ^ mask) * factor, starts)
            band = index // _ROWS
            bands_NB[full, band] = _mix_bits(bands_NB[full, band] * _ODD + least_N + np.uint64(1))
    return bands_NB


def similarity(grams: Hashes, other: Hashes) -> float:
    """Returns the Jaccard similarity of two sets of grams; 0 if both are empty."""
    shared = len(np.intersect1d(grams, other))
    total = len(np.unique(grams)) + len(np.unique(other)) - shared
    return shared / total if total else 0.0


def is_in(grams: Hashes, sorted_hashes: Hashes) -> NDArray[np.bool_]:
    """Returns which grams are among sorted hashes."""
    if not len(sorted_hashes):
        return np.zeros(len(grams), dtype=bool)
    places = np.searchsorted(sorted_hashes, grams)
    places[places == len(sorted_hashes)] = 0
    return sorted_hashes[places] == grams


def _mix_bits(hashes: Hashes) -> Hashes:
    """Spreads hashes over 64 bits (the finaliser of splitmix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
