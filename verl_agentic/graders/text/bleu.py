"""BLEU of short texts: n-grams only as long as both texts can have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

MAX_ORDER = 4


def length_aware_bleu(words: Sequence[str], reference: Sequence[str]) -> float:
    """Returns the BLEU of words against one reference, in [0, 1]; 0 when either is empty.

    Geometric mean of the clipped precisions of 1- to N-grams, with N = min(4, words, words of the reference), times the
    brevity penalty exp(1 - reference / words) where the words are fewer. Without smoothing: an order without a match
    makes it 0. With the usual N = 4 every answer of less than four words would have 0, the right one as well.

    Paper: https://arxiv.org/abs/2512.07478 (PRS). Deviations: the paper has a length-aware BLEU for short answers; this
    form of it is ours.
    """
    order = min(MAX_ORDER, len(words), len(reference))
    if not order:
        return 0.0
    logs = 0.0
    for n in range(1, order + 1):
        grams, reference_grams = _count_ngrams(words, n), _count_ngrams(reference, n)
        matches = sum(min(count, grams[gram]) for gram, count in reference_grams.items() if gram in grams)
        if not matches:
            return 0.0
        logs += math.log(matches / grams.total()) / order
    return math.exp(logs + min(0.0, 1.0 - len(reference) / len(words)))


def _count_ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
