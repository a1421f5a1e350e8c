"""ARPO's branching rule: spends some samples of a prompt where the policy's entropy rises.

Some rollouts of a prompt start at once. After each tool output, the entropy of the policy's next tokens is compared
with that of its first tokens. The more it has risen, the more likely another rollout branches off there, with the same
prefix. The number of samples per prompt does not change.

Paper: https://arxiv.org/abs/2507.19849
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from verl_agentic.episode.loop_settings import Branching


def sampled_entropy(log_probs: Sequence[float], *, vocab_size: int, max_tokens: int = 20) -> float:
    """Returns `-sum(log p) / ln(vocab_size)` over the first tokens of a turn.

    Its expectation is the sum of the entropies at these positions, in units of a uniform distribution's entropy. It is
    our estimate from one sample, because rollout servers report only the log-prob of the sampled token. ARPO's code
    sums `-p log p` over the ten most likely tokens instead, which has less noise and ignores the tail.

    Args:
        log_probs: log-probs of the sampled tokens.
        max_tokens: how many of the first tokens count.
    """
    return -sum(log_probs[:max_tokens]) / math.log(vocab_size)


def entropy_rise(first: Sequence[float], now: Sequence[float], *, vocab_size: int, max_tokens: int = 20) -> float:
    """Returns the entropy at the start of a turn minus that at the start of the rollout's first turn.

    Both sums use the length of the shorter turn. Deviations from ARPO's code: it compares sums of different lengths, so
    short turns look certain. It measures the turn before the tool output; the paper and this function, the turn after
    it. It keeps the first turn's entropy per place in the batch and never resets it.

    Args:
        first: log-probs of the rollout's first turn.
        now: log-probs of the turn after the observation.
        vocab_size, max_tokens: see `sampled_entropy`.
    """
    count = min(len(first), len(now), max_tokens)
    before, after = (sampled_entropy(turn, vocab_size=vocab_size, max_tokens=count) for turn in (first, now))
    return after - before


def branch_probability(rise: float, *, probability: float = 0.5, entropy_weight: float = 0.2) -> float:
    """Returns the probability of branching, `clip(probability + entropy_weight * rise, 0, 1)`.

    The paper branches above a threshold; its code draws, as here. See `entropy_rise` and `Branching`.
    """
    return min(1.0, max(0.0, probability + entropy_weight * rise))


def num_branches(how: Branching, *, rise: float, num_free: int, draw: Callable[[], float]) -> int:
    """Returns how many of the remaining samples start at this place.

    Args:
        num_free: samples of the prompt that have not started.
        draw: returns a uniform number from `[0, 1)`.
    """
    chance = branch_probability(rise, probability=how.probability, entropy_weight=how.entropy_weight)
    return sum(draw() < chance for _ in range(min(how.beam - 1, num_free)))
