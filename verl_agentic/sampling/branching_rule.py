"""When a rollout branches: ARPO's rule, which spends a part of a prompt's samples where the policy wavers.

Some rollouts of a prompt begin at once. After each observation of a tool, the entropy of the policy's next tokens is
compared with that of its first ones; the more it has risen, the likelier another rollout begins there, with all that
came before. The number of samples of a prompt stays what it was.

Paper: https://arxiv.org/abs/2507.19849
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verl_agentic.errors import ConfigError
from verl_agentic.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Branching(Settings):
    """How the rollouts of a prompt branch. The defaults are those of ARPO's published scripts and code."""

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
        """Fails where nothing could ever branch.

        Raises:
            ConfigError: all rollouts of a prompt begin at once, or the policy gives no log-probs.
        """
        if self.initial >= group_size:
            raise ConfigError(
                f"branching.initial must be below rollout.n, or no sample is left to branch, got {self.initial} of "
                f"{group_size}; lower it, or raise rollout.n"
            )
        if not has_log_probs:
            raise ConfigError(
                "branching needs the log-probs of what was sampled, got rollout.calculate_log_probs=False; set it"
            )


def sampled_entropy(log_probs: Sequence[float], *, vocab_size: int, max_tokens: int = 20) -> float:
    """Returns `-sum(log p) / ln(vocab_size)` over the first tokens of a turn.

    Its mean over what the policy may sample is the sum of the entropies of these places, in units of the entropy of a
    uniform draw: an estimate from one draw, since rollout servers report the log-prob of the sampled token only. It
    is our own; ARPO's code sums `-p log p` over the ten likeliest tokens of every place instead, which has less
    noise and leaves out the tail.

    Args:
        log_probs: of the sampled tokens, under the distribution that they were sampled from.
        vocab_size: size of the vocabulary.
        max_tokens: how many of the first tokens count.
    """
    return -sum(log_probs[:max_tokens]) / math.log(vocab_size)


def entropy_rise(first: Sequence[float], now: Sequence[float], *, vocab_size: int, max_tokens: int = 20) -> float:
    """Returns how much more entropy a turn begins with than the first one of its rollout.

    Both are sums over as many tokens as the shorter of them has: ARPO's code compares sums of different lengths, so a
    short turn looks sure of itself, however the policy wavers. It also measures the turn that made the call, where
    this measures the one after the answer, as the paper says; and it keeps the first turn's entropy per place in the
    batch and never resets it, where this is that of the same rollout.

    Args:
        first: log-probs of the tokens that were sampled in the rollout's first turn.
        now: of those that were sampled after the observation.
        vocab_size: size of the vocabulary.
        max_tokens: how many of the first tokens count.
    """
    count = min(len(first), len(now), max_tokens)
    before, after = (sampled_entropy(turn, vocab_size=vocab_size, max_tokens=count) for turn in (first, now))
    return after - before


def branch_probability(rise: float, *, probability: float = 0.5, entropy_weight: float = 0.2) -> float:
    """Returns the chance to branch, `clip(probability + entropy_weight * rise, 0, 1)`.

    The paper branches where this passes a threshold; its code draws, as is done here.

    Args:
        rise: of the entropy, see `entropy_rise`.
        probability: `Branching.probability`.
        entropy_weight: `Branching.entropy_weight`.
    """
    return min(1.0, max(0.0, probability + entropy_weight * rise))


def num_branches(how: Branching, *, rise: float, num_free: int, draw: Callable[[], float]) -> int:
    """Returns how many of the samples that are left begin at this place.

    Args:
        how: the rule.
        rise: see `branch_probability`.
        num_free: samples of the prompt that have not begun.
        draw: returns a uniform number from `[0, 1)`, one per sample that may begin here.
    """
    chance = branch_probability(rise, probability=how.probability, entropy_weight=how.entropy_weight)
    return sum(draw() < chance for _ in range(min(how.beam - 1, num_free)))
