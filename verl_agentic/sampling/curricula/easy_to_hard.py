"""The easiest prompts first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_agentic.sampling.curriculum import Pool, curriculum


@curriculum(needs=("difficulty",), returns="order")
def easy_to_hard(pool: Pool) -> NDArray[np.int64]:
    """Returns the prompts by rising difficulty, equal ones in the order of the data, in every epoch.

    Unlike verl's sequential sampler over a sorted file, it drops no prompts at the end of an epoch if the batch size
    does not divide their number.
    """
    assert pool.difficulty_N is not None
    return np.argsort(pool.difficulty_N, kind="stable")
