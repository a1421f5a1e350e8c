"""One source of prompts after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curriculum import Pool, curriculum
from verl_agentic.sampling.prompts.pass_rates import Floats


@curriculum(needs=("source",))
def by_source(pool: Pool, *, stages: Sequence[Mapping[str, Any]]) -> Floats:
    """Returns 1 for prompts of the sources of the current stage, else 0: first mathematics, then code.

    A stage with `steps` steps that starts at step b covers the steps b to b + steps - 1. The last stage has no end.

    Args:
        stages: each `{sources: [name, ...], steps: n}`; `steps` of the last one is optional.

    Raises:
        ConfigError: a stage has another form, or the data have none of its sources.
    """
    assert pool.source_N is not None
    _check_stages(stages)
    end = 0
    current = stages[-1]
    for stage in stages[:-1]:
        end += stage["steps"]
        if pool.step <= end:
            current = stage
            break
    weights = np.isin(pool.source_N, list(current["sources"])).astype(np.float64)
    if not weights.any():
        sources = sorted(set(pool.source_N.tolist()))
        raise ConfigError(f"by_source: the data have none of {list(current['sources'])}; they have {sources[:20]}")
    return weights


def _check_stages(stages: Sequence[Mapping[str, Any]]) -> None:
    for place, stage in enumerate(stages):
        is_last = place == len(stages) - 1
        steps = stage.get("steps") if isinstance(stage, Mapping) else 0
        is_timed = isinstance(steps, int) and steps >= 1
        if not isinstance(stage, Mapping) or not stage.get("sources") or not (is_timed or (is_last and steps is None)):
            raise ConfigError(f"by_source.stages must be a list of {{sources, steps >= 1}}, got {stage!r}")
    if not stages:
        raise ConfigError("by_source.stages must not be empty, got no stage")
