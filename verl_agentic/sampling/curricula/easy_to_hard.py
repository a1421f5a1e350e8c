"""The easiest prompts first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_agentic.sampling.curriculum import Pool, curriculum


@curriculum(needs=("difficulty",), returns="order")
def easy_to_hard(pool: Pool) -> NDArray[np.int64]:
    """Returns the prompts by rising difficulty, equal ones in the order of the data; every epoch anew.

    The seed names the order, no paper's schedule. Unlike verl's sequential sampler over a sorted file, no prompts are
    lost at the end of an epoch where the batch size does not divide their number.
    """
    assert pool.difficulty_N is not None
    return np.argsort(pool.difficulty_N, kind="stable")
