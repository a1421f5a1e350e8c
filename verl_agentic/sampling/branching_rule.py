"""ARPO's branching rule: spends some samples of a prompt where the policy's entropy rises.

Some rollouts of a prompt start at once. After each tool output, the entropy of the policy's next tokens is compared
with that of its first tokens. The more it has risen, the more likely another rollout branches off there, with the same
prefix. The number of samples per prompt does not change.

Paper: https://arxiv.org/abs/2507.19849
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting


class Branching(Settings):
    """Settings for branching the rollouts of a prompt. The defaults are those of ARPO's published scripts and code."""

    initial: int = setting(8, min=1)
    """Number of rollouts of a prompt that start at once. The others wait for a place to branch from."""
    beam: int = setting(2, min=2)
    """Maximum number of rollouts that continue from one place, the original one included."""
    probability: float = setting(0.5, min=0, max=1)
    """Probability of branching where the entropy equals that of the first turn."""
    entropy_weight: float = 0.2
    """Increase of that probability per unit of entropy above the first turn's."""
    entropy_tokens: int = setting(20, min=1)
    """Number of first tokens of a turn whose entropy counts."""

    def check_rollout(self, *, group_size: int, has_log_probs: bool) -> None:
        """Raises ConfigError if nothing can branch: all rollouts start at once, or the policy gives no log-probs."""
        if self.initial >= group_size:
            raise ConfigError(
                f"branching.initial must be below rollout.n, or no sample is left to branch, got {self.initial} of "
                f"{group_size}; lower it, or raise rollout.n"
            )
        if not has_log_probs:
            raise ConfigError("branching needs sampled log-probs, got rollout.calculate_log_probs=False; set it")


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
