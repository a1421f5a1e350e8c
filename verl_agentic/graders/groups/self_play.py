"""Self-play: rewards a proposer of tasks by the success rate of a solver.

The environment of the proposer lets a solver try the task and reports, as `Reward.info`:

- `solve_rate`: share of right tries, in [0, 1]; missing if the task is invalid,
- `well_formed`: 1.0 or 0.0, needed without `solve_rate`: whether the proposal could be read,
- `rag_check`: 1.0 or 0.0, for search questions: whether a model could answer the question from the documents of the
  proposer's own searches (https://arxiv.org/abs/2510.18821).
"""

from __future__ import annotations

from verl_agentic.base.errors import ScoringError
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.sample import Sample

SOLVE_RATE = "solve_rate"
"""Name of the success rate in `Reward.info`."""


def solve_rate(sample: Sample) -> float | None:
    """Returns the solver's success rate; None without a valid task. Raises ScoringError if the report is invalid."""
    rate = _get_env_info(sample).get(SOLVE_RATE)
    if is_silent(sample):
        return None
    if rate is None:
        flag(sample, "well_formed")
    elif not 0.0 <= rate <= 1.0:
        raise ScoringError(f"the environment must report a solve_rate in [0, 1], got {rate}; fix the environment")
    return rate


def flag(sample: Sample, name: str) -> bool:
    """Returns a flag of the environment; False for an empty episode. Raises ScoringError if it was not reported."""
    if is_silent(sample):
        return False
    if name not in _get_env_info(sample):
        raise ScoringError(
            f"the environment must report {name!r} of a proposed task, got only {sorted(_get_env_info(sample))}; "
            "see verl_agentic.graders.groups.self_play"
        )
    return _get_env_info(sample)[name] > 0.0


def _get_env_info(sample: Sample) -> dict[str, float]:
    if sample.env is None:
        raise ScoringError("the environment said nothing of the proposed task; it must report its solve_rate")
    return dict(sample.env.info)


def learnability(rate: float) -> float:
    """Returns 1 - 2 |p - 1/2|, with its maximum at p = 1/2 (R-Zero, the paper)."""
    return 1.0 - 2.0 * abs(rate - 0.5)


def minority(rate: float) -> float:
    """Returns min(p, 1 - p) (R-Zero, the code)."""
    return min(rate, 1.0 - rate)


def difficulty(rate: float) -> float:
    """Returns 1 - p, and 0 for p = 0 (Absolute Zero)."""
    return 1.0 - rate if rate > 0.0 else 0.0
