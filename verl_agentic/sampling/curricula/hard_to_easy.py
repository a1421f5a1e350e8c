"""The hardest prompts first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verl_agentic.sampling.curricula.easy_to_hard import easy_to_hard
from verl_agentic.sampling.curriculum import Pool, curriculum


@curriculum(needs=("difficulty",), returns="order")
def hard_to_easy(pool: Pool) -> NDArray[np.int64]:
    """Returns the prompts by falling difficulty, equal ones in the order of the data, in every epoch."""
    assert pool.difficulty_N is not None
    return easy_to_hard.function(replace(pool, difficulty_N=-pool.difficulty_N))
