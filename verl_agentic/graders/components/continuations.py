"""Labels each turn by the success rate of siblings that continue from the same state."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.graders.turns.step_labels import label_steps
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample


def _check_options(k: int) -> None:
    if k < 2:
        raise ConfigError(f"continuations.k must be 2 or more, got {k}; one rollout alone says nothing of a turn")


@component(scope="group", inline=True, check=_check_options)
def continuations(samples: Sequence[Sample], *, k: int = 4, soft: bool = True) -> list[Graded]:
    """Returns for each sample the mean label of its turns; each turn gets its share, label / turns.

    A label is estimated from the outcomes of siblings that continued from the same state (`step_labels.label_steps`).
    Rollouts must branch, or siblings share only the prompt. A turn with fewer than k continuations gets 0; a sample
    without a labelled turn abstains.

    Args:
        k: minimum number of rollouts per label. Its standard error is at most 1 / (2 sqrt(k)).
        soft: whether the label is the share of successes; otherwise 1 if there is any.

    Raises:
        ScoringError: the environment did not score an episode.

    Paper: https://arxiv.org/abs/2312.08935 (Math-Shepherd, eq. 3 and 4). Deviations: the paper samples N completions
    from each step; here they are the group's. Labels are divided by the number of turns, so the sum does not grow with
    it.
    """
    outcomes = [sample.env.outcome for sample in samples if sample.env is not None]
    if len(outcomes) < len(samples):
        raise ScoringError("the environment gave no outcome for some of the group; continuations needs it for all")
    labels = label_steps(samples, outcomes, continuations=k, soft=soft)
    return [
        Graded(turns={turn: label.value / len(sample.turns) for turn, label in turn_labels.items()})
        if turn_labels
        else ABSTAIN
        for sample, turn_labels in zip(samples, labels, strict=True)
    ]
