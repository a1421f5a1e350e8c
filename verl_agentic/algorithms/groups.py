"""Statistics over groups in which only members count that say something: N members, G groups."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def group_counts(group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float: the number of valid members of everyone's group."""
    return _sums(valid_N.float(), group_N, num_groups)[group_N]


def group_means(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float: the mean over the valid members of everyone's group; 0 in a group that has none.

    Args:
        values_N: `[N]` float; those that are not valid may be anything finite.
        group_N: `[N]` int64 in `[0, num_groups)`.
        valid_N: `[N]` bool.
        num_groups: G.
    """
    sums_N = _sums(values_N * valid_N, group_N, num_groups)[group_N]
    return sums_N / group_counts(group_N, valid_N=valid_N, num_groups=num_groups).clamp(min=1.0)


def group_stds(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int, ddof: int) -> Tensor:
    """Returns `[N]` float: the standard deviation of everyone's group; 0 where fewer than `ddof + 1` are valid.

    The mean is taken off first: with near-equal values, sums of squares would leave nothing but rounding.
    """
    means_N = group_means(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    squares_N = ((values_N - means_N) ** 2) * valid_N
    degrees_N = group_counts(group_N, valid_N=valid_N, num_groups=num_groups) - ddof
    variance_N = _sums(squares_N, group_N, num_groups)[group_N] / degrees_N.clamp(min=1.0)
    return torch.where(degrees_N > 0, variance_N, torch.zeros_like(variance_N)).sqrt()


def _sums(values_N: Tensor, group_N: Tensor, num_groups: int) -> Tensor:
    return torch.zeros(num_groups, dtype=values_N.dtype, device=values_N.device).index_add_(0, group_N, values_N)
