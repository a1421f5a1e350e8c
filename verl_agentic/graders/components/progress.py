"""Stepwise progress attribution (SPA): rewards each turn for its contribution to the outcome."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.base.registry import load_address
from verl_agentic.graders.turns.turn_progress import ProgressEstimator, fused, is_grounded
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample


def _load_estimator(estimator: str, model: str) -> ProgressEstimator:
    if bool(estimator) == bool(model):
        raise ConfigError(
            f"progress needs one of its options estimator and model, got {estimator!r} and {model!r}; give the folder "
            "that `verl-agentic reward progress` wrote as model, or the address of your function as estimator"
        )
    if model:
        from verl_agentic.methods.progress_model import load_progress_model

        return load_progress_model(model)
    return load_address(estimator, what="estimator of the component progress")


@component(low=lambda cap: -cap, high=lambda cap: cap, info=("grounded_share",), check=_load_estimator)
def progress(
    sample: Sample, *, estimator: str = "", model: str = "", alpha: float = 1.0, beta: float = 0.5, cap: float = 1.0
) -> Graded:
    """Returns alpha * contribution + beta * grounded of each turn; scales the sum down to at most `cap`.

    An episode without an answer and without a call gets no reward.

    Args:
        estimator: `package.module:function` or `path/file.py:function` of a `ProgressEstimator`:
            sample -> contribution of each turn.
        model: in place of `estimator`, the folder of one that `verl-agentic reward progress` has trained. It is loaded
            in each process that scores, and computes on its CPU.
        alpha: weight of the contribution.
        beta: weight of a turn whose calls could all be carried out.
        cap: maximum absolute reward of an episode. The original has no bound; set `alpha + beta * max_turns` for its
            numbers.

    Raises:
        ScoringError: the estimator did not give one number for each turn.

    Paper: https://arxiv.org/abs/2505.20732
    """
    contributions = list(_load_estimator(estimator, model)(sample))
    if len(contributions) != len(sample.turns):
        raise ScoringError(
            f"the estimator {estimator or model!r} must give one number for each of {len(sample.turns)} turns, "
            f"got {len(contributions)}; fix the estimator"
        )
    grounded = [is_grounded(turn) for turn in sample.turns]
    values = fused(contributions, grounded, alpha=alpha, beta=beta)
    total = sum(values)
    if is_silent(sample) and total > 0:
        values, total = [0.0] * len(values), 0.0
    scale = cap / abs(total) if abs(total) > cap else 1.0
    turns = {turn.index: scale * value for turn, value in zip(sample.turns, values, strict=True)}
    return Graded(value=scale * total, turns=turns, info={"grounded_share": sum(grounded) / max(1, len(grounded))})
