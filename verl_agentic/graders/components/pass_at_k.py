"""Rewards that optimise pass@k of a group."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample


def best_of_k(outcomes: Sequence[float], *, k: int) -> list[float]:
    """Returns for each sample the mean, over all subsets of k that hold it, of the subset's best outcome.

    For outcomes of 0 and 1 that is 1 for a success and 1 - C(n-1-c, k-1) / C(n-1, k-1) for a failure, where c of n
    succeed. The mean over the group is the unbiased estimate of pass@k. A k greater than n counts as n.
    """
    n = len(outcomes)
    k = min(k, n)
    order = sorted(range(n), key=outcomes.__getitem__)
    best = [0.0] * n
    for index in order:
        others = [outcomes[other] for other in order if other != index]
        # The best of k - 1 of the others is the one of rank m in comb(m, k - 2) of the subsets.
        if k == 1:
            best[index] = outcomes[index]
            continue
        subsets = math.comb(n - 1, k - 1)
        chances = (math.comb(m, k - 2) / subsets for m in range(n - 1))
        best[index] = sum(p * max(outcomes[index], other) for p, other in zip(chances, others, strict=True))
    return best


def _check_options(k: int) -> None:
    if k < 1:
        raise ConfigError(f"pass_at_k.k must be 1 or more, got {k}")


@component(kind="outcome", scope="group", inline=True, check=_check_options)
def pass_at_k(samples: Sequence[Sample], *, k: int) -> list[Graded]:
    """Returns for each sample the mean best outcome over all subsets of k samples that contain it.

    A failure loses little in a group with successes, and everything in a group without any. `acc` is the sample's own
    outcome.

    Args:
        k: number of tries; the group should be larger.

    Raises:
        ScoringError: the environment did not score an episode.

    Paper: https://arxiv.org/abs/2505.15201 (theorem 2). Deviations: without the factor k / n, which is constant in a
    group.
    """
    outcomes = [sample.env.outcome for sample in samples if sample.env is not None]
    if len(outcomes) < len(samples):
        raise ScoringError("the environment gave no outcome for some of the group; pass_at_k needs it for all")
    values = best_of_k(outcomes, k=k)
    return [Graded(value=value, solved=outcome) for value, outcome in zip(values, outcomes, strict=True)]
