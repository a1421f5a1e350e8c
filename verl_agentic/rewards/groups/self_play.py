"""Self-play: what a policy that poses tasks earns, by how often a solver does them.

The environment of the proposer lets a solver try the task and reports, as `Reward.info`:

- `solve_rate`: share of its tries that were right, in [0, 1]; missing when the task could not be posed,
- `well_formed`: 1.0 or 0.0, needed when `solve_rate` is missing: could the proposal be read at all?
- `rag_check`: 1.0 or 0.0, for search questions: could a model answer the question from the documents that the
  proposer's own searches found (https://arxiv.org/abs/2510.18821)?
"""

from __future__ import annotations

from verl_agentic.errors import ScoringError
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_silent


def solve_rate(sample: Sample) -> float | None:
    """Returns the share of the solver's tries that were right; None when no task was posed, or it could not be.

    Raises:
        ScoringError: the environment reported neither `solve_rate` nor `well_formed`, or a share that is none.
    """
    rate = _info(sample).get("solve_rate")
    if is_silent(sample):
        return None
    if rate is None:
        flag(sample, "well_formed")
    elif not 0.0 <= rate <= 1.0:
        raise ScoringError(f"the environment must report a solve_rate in [0, 1], got {rate}; mend the environment")
    return rate


def flag(sample: Sample, name: str) -> bool:
    """Returns a yes or no of the environment; no for an episode without an answer and without a call.

    Raises:
        ScoringError: it did not report it.
    """
    if is_silent(sample):
        return False
    if name not in _info(sample):
        raise ScoringError(
            f"the environment must report {name!r} of a proposed task, got only {sorted(_info(sample))}; "
            "see verl_agentic.rewards.groups.self_play"
        )
    return _info(sample)[name] > 0.0


def _info(sample: Sample) -> dict[str, float]:
    if sample.env is None:
        raise ScoringError("the environment said nothing of the proposed task; it must report its solve_rate")
    return dict(sample.env.info)


def learnability(rate: float) -> float:
    """Returns 1 - 2 |p - 1/2|, greatest where half of the tries are right (R-Zero, the paper)."""
    return 1.0 - 2.0 * abs(rate - 0.5)


def minority(rate: float) -> float:
    """Returns min(p, 1 - p) (R-Zero, the code)."""
    return min(rate, 1.0 - rate)


def difficulty(rate: float) -> float:
    """Returns 1 - p, and 0 for what nobody solves; greatest at the least p above 0 (Absolute Zero)."""
    return 1.0 - rate if rate > 0.0 else 0.0
