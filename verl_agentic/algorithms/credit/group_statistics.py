"""Statistics over groups in which only members count that say something: N members, G groups.

All are computed in float64, and less the lowest member of the group: in a group of equal members, whatever their
value, means are that value, and deviations and standard deviations 0, to the bit.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

_ROUNDINGS = 32
"""Members that differ by less than so many roundings of the largest one are equal: sums of rounded rewards differ by as
much, and division by their standard deviation would make a lesson of it."""


def group_counts(group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float64: the number of valid members of everyone's group."""
    return _sums(valid_N.double(), group_N, num_groups)[group_N]


def group_means(
    values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int, weights_N: Tensor | None = None
) -> Tensor:
    """Returns `[N]` float64: the mean over the valid members of everyone's group; 0 in a group that has none.

    Args:
        values_N: `[N]` float; those that are not valid may be anything.
        group_N: `[N]` int64 in `[0, num_groups)`.
        valid_N: `[N]` bool.
        num_groups: G.
        weights_N: `[N]` float, not negative, and above 0 for one valid member of every group; None: all the same.
    """
    lowest_N = group_lowest(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    weights_N = valid_N.double() if weights_N is None else torch.where(valid_N, weights_N.double(), 0.0)
    return lowest_N + _shifted_means(values_N - lowest_N, weights_N, group_N, num_groups)


def group_centred(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float64: values less the mean of their group; 0 if the group is constant, or they are not valid."""
    is_constant_N = is_constant(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    values_N = values_N.double()
    lowest_N = group_lowest(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    means_N = _shifted_means(values_N - lowest_N, valid_N.double(), group_N, num_groups)
    return torch.where(valid_N & ~is_constant_N, values_N - lowest_N - means_N, 0.0)


def group_lowest(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float64: the lowest valid member of everyone's group; 0 in a group that has none."""
    lowest_G = torch.full((num_groups,), torch.inf, dtype=torch.float64, device=values_N.device)
    candidates_N = torch.where(valid_N, values_N.detach().double(), torch.inf)
    lowest_G = lowest_G.scatter_reduce(0, group_N, candidates_N, reduce="amin")
    return torch.where(lowest_G.isfinite(), lowest_G, 0.0)[group_N]


def resolution(sizes_N: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns `[N]` below what sums of numbers of a type do not differ, where the numbers add up to `sizes_N`."""
    return _ROUNDINGS * torch.finfo(dtype).eps * sizes_N


def is_constant(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` bool: the valid members of the group are equal, within the rounding of their type."""
    lowest_N = group_lowest(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    highest_N = -group_lowest(-values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    return highest_N - lowest_N <= resolution(torch.maximum(highest_N.abs(), lowest_N.abs()), values_N.dtype)


def group_stds(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int, ddof: int) -> Tensor:
    """Returns `[N]` float64: the standard deviation of everyone's group; 0 where fewer than `ddof + 1` are valid."""
    squares_N = group_centred(values_N, group_N, valid_N=valid_N, num_groups=num_groups).square()
    degrees_N = group_counts(group_N, valid_N=valid_N, num_groups=num_groups) - ddof
    variance_N = _sums(squares_N, group_N, num_groups)[group_N] / degrees_N.clamp(min=1.0)
    return torch.where(degrees_N > 0, variance_N, 0.0).sqrt()


def _shifted_means(shifted_N: Tensor, weights_N: Tensor, group_N: Tensor, num_groups: int) -> Tensor:
    sums_N = _sums(torch.where(weights_N > 0, weights_N * shifted_N, 0.0), group_N, num_groups)[group_N]
    totals_N = _sums(weights_N, group_N, num_groups)[group_N]
    return torch.where(totals_N > 0, sums_N / totals_N, 0.0)


def _sums(values_N: Tensor, group_N: Tensor, num_groups: int) -> Tensor:
    return torch.zeros(num_groups, dtype=values_N.dtype, device=values_N.device).index_add_(0, group_N, values_N)
