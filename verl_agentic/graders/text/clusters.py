"""Clusters of nearly equal texts in a group: BLEU as similarity, average linkage.

Paper: https://arxiv.org/abs/2508.05004 (R-Zero, repetition penalty)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

_ORDERS = 4
_SMOOTHING = 0.1
"""Stands for a count of 0, as in the first method of Chen and Cherry (2014)."""


def sentence_bleu(reference: Sequence[str], hypothesis: Sequence[str]) -> float:
    """Returns the BLEU of a hypothesis against one reference, in [0, 1]; 0 without a word in common.

    Geometric mean of the clipped precisions of 1- to 4-grams, smoothed, times the brevity penalty.
    """
    if not hypothesis or not set(reference) & set(hypothesis):
        return 0.0
    logs = 0.0
    for order in range(1, _ORDERS + 1):
        grams, reference_grams = _count_ngrams(hypothesis, order), _count_ngrams(reference, order)
        matches = sum((grams & reference_grams).values()) or _SMOOTHING
        logs += math.log(matches / max(1, sum(grams.values()))) / _ORDERS
    brevity = min(0.0, 1.0 - len(reference) / len(hypothesis))
    return min(1.0, math.exp(logs + brevity))


def cluster_shares(texts: Sequence[str], *, distance: float = 0.5, max_words: int = 400) -> list[float]:
    """Returns for each text the share of all texts that stand in its cluster, in (0, 1].

    The two closest clusters are joined as long as their mean distance, 1 - BLEU, is less than `distance`.

    Args:
        texts: of the group.
        distance: at which clusters stay apart.
        max_words: how much of each text is compared.
    """
    words = [text.split(maxsplit=max_words)[:max_words] for text in texts]
    clusters = [[index] for index in range(len(texts))]
    apart = [[0.0] * len(texts) for _ in texts]
    for i in range(len(texts)):
        for j in range(i + 1, len(texts)):
            apart[i][j] = apart[j][i] = 0.0 if words[i] == words[j] else 1.0 - sentence_bleu(words[i], words[j])
    while len(clusters) > 1:
        gap, i, j = min(
            (_average_distances(apart, a, b), i, j)
            for i, a in enumerate(clusters)
            for j, b in enumerate(clusters)
            if i < j
        )
        if gap >= distance:
            break
        clusters[i] += clusters.pop(j)
    sizes = {index: len(cluster) for cluster in clusters for index in cluster}
    return [sizes[index] / len(texts) for index in range(len(texts))]


def _average_distances(apart: Sequence[Sequence[float]], first: Sequence[int], second: Sequence[int]) -> float:
    return sum(apart[i][j] for i in first for j in second) / (len(first) * len(second))


def _count_ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + order]) for i in range(len(words) - order + 1))
