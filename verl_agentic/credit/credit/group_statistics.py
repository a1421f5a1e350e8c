"""Statistics over the valid members of groups: N members, G groups.

All are computed in float64, after subtracting the lowest member of the group. So in a group of equal members the mean
is exactly that value, and deviations are exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDINGS = 32
"""Members that differ by less than this many rounding errors of the largest one are equal. Sums of rounded rewards
differ by as much, and dividing by their standard deviation would amplify the error. Whole numbers up to 2^20 are exact
sums, so they are compared exactly."""
_MAX_EXACT = 2.0**20


def group_counts(group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float64: the number of valid members of each member's group."""
    return _sum_groups(valid_N.double(), group_N, num_groups)[group_N]


def group_means(
    values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int, weights_N: Tensor | None = None
) -> Tensor:
    """Returns `[N]` float64: the mean over the valid members of the group; 0 for a group without any.

    Args:
        values_N: `[N]` float; invalid ones may be anything.
        group_N: `[N]` int64 in `[0, num_groups)`.
        weights_N: `[N]` float, not negative, above 0 for at least one valid member of every group; None: equal.
    """
    lowest_N = group_lowest(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    weights_N = valid_N.double() if weights_N is None else torch.where(valid_N, weights_N.double(), 0.0)
    return lowest_N + _shifted_means(values_N - lowest_N, weights_N, group_N, num_groups)


def group_centred(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float64: values minus the mean of their group; 0 if the group is constant or the member invalid."""
    is_constant_N = is_constant(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    values_N = values_N.double()
    lowest_N = group_lowest(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    means_N = _shifted_means(values_N - lowest_N, valid_N.double(), group_N, num_groups)
    return torch.where(valid_N & ~is_constant_N, values_N - lowest_N - means_N, 0.0)


def group_lowest(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` float64: the lowest valid member of the group; 0 for a group without any."""
    lowest_G = torch.full((num_groups,), torch.inf, dtype=torch.float64, device=values_N.device)
    candidates_N = torch.where(valid_N, values_N.detach().double(), torch.inf)
    lowest_G = lowest_G.scatter_reduce(0, group_N, candidates_N, reduce="amin")
    return torch.where(lowest_G.isfinite(), lowest_G, 0.0)[group_N]


def resolution(sizes_N: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns `[N]`: the rounding error of sums whose absolute terms add up to `sizes_N`."""
    return _ROUNDINGS * torch.finfo(dtype).eps * sizes_N


def is_constant(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int) -> Tensor:
    """Returns `[N]` bool: the valid members of the group are equal within the rounding of their type."""
    lowest_N = group_lowest(values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    highest_N = -group_lowest(-values_N, group_N, valid_N=valid_N, num_groups=num_groups)
    sizes_N = torch.maximum(highest_N.abs(), lowest_N.abs())
    is_exact_N = (highest_N == highest_N.round()) & (lowest_N == lowest_N.round()) & (sizes_N <= _MAX_EXACT)
    return highest_N - lowest_N <= torch.where(is_exact_N, 0.0, resolution(sizes_N, values_N.dtype))


def group_stds(values_N: Tensor, group_N: Tensor, *, valid_N: Tensor, num_groups: int, ddof: int) -> Tensor:
    """Returns `[N]` float64: the standard deviation of the group; 0 if fewer than `ddof + 1` members are valid."""
    squares_N = group_centred(values_N, group_N, valid_N=valid_N, num_groups=num_groups).square()
    degrees_N = group_counts(group_N, valid_N=valid_N, num_groups=num_groups) - ddof
    variance_N = _sum_groups(squares_N, group_N, num_groups)[group_N] / degrees_N.clamp(min=1.0)
    return torch.where(degrees_N > 0, variance_N, 0.0).sqrt()


def _shifted_means(shifted_N: Tensor, weights_N: Tensor, group_N: Tensor, num_groups: int) -> Tensor:
    sums_N = _sum_groups(torch.where(weights_N > 0, weights_N * shifted_N, 0.0), group_N, num_groups)[group_N]
    totals_N = _sum_groups(weights_N, group_N, num_groups)[group_N]
    return torch.where(totals_N > 0, sums_N / totals_N, 0.0)


def _sum_groups(values_N: Tensor, group_N: Tensor, num_groups: int) -> Tensor:
    return torch.zeros(num_groups, dtype=values_N.dtype, device=values_N.device).index_add_(0, group_N, values_N)
