"""Sources in fixed shares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


@curriculum(needs=("source",))
def mix(pool: Pool, *, ratios: Mapping[str, float]) -> Floats:
    """Returns weights that draw the sources in the given shares, and prompts of one source equally.

    Sources that are not named share the rest in proportion to their sizes. For example, `ratios={reasoning: 0.25}`
    mixes a quarter of reasoning into an agent's data, against forgetting. Shares count prompts, not tokens.

    Args:
        ratios: share of each source. Their sum is at most 1, and exactly 1 if all sources are named.

    Raises:
        ConfigError: the shares are impossible, or the data lack a source.
    """
    assert pool.source_N is not None
    total = sum(ratios.values())
    if not ratios or min(ratios.values()) < 0 or total > 1 + 1e-9:
        raise ConfigError(f"mix.ratios must be shares >= 0 with a sum of at most 1, got {dict(ratios)}")
    weights = np.zeros(len(pool))
    is_unnamed = np.ones(len(pool), dtype=bool)
    for source, ratio in ratios.items():
        is_of = pool.source_N == source
        if not is_of.any():
            raise ConfigError(f"mix: the data have no source {source!r}; they have {sorted(set(pool.source_N))[:20]}")
        weights[is_of] = ratio / is_of.sum()
        is_unnamed &= ~is_of
    rest = 1.0 - total
    if abs(rest) > 1e-9 and not is_unnamed.any():
        raise ConfigError(f"mix.ratios name all sources and must have a sum of 1, got {total}")
    if is_unnamed.any():
        weights[is_unnamed] = max(0.0, rest) / is_unnamed.sum()
    return weights
