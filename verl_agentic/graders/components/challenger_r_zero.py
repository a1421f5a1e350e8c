"""The reward of R-Zero's challenger: for questions that are solved half of the time and are new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.tags import last_block
from verl_agentic.graders.groups.self_play import learnability, minority, solve_rate
from verl_agentic.graders.text.clusters import cluster_shares
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample

Form = Literal["paper", "code"]


def _check_options(repetition_weight: float) -> None:
    if not repetition_weight >= 0:
        raise ConfigError(f"challenger_r_zero.repetition_weight must be 0 or more, got {repetition_weight}")


@component(
    low=lambda form, repetition_weight: 0.0 if form == "paper" else -max(1.0, repetition_weight),
    high=lambda form: 1.0 if form == "paper" else 0.5,
    kind="outcome",
    scope="group",
    check=_check_options,
)
def challenger_r_zero(
    samples: Sequence[Sample], *, form: Form = "paper", repetition_weight: float = 1.0
) -> list[Graded]:
    """Returns the learnability of each question, minus a penalty for similar questions in the group.

    With p the solver's success rate and s the share of the group's questions in the same cluster (average linkage, 1 -
    BLEU < 0.5):

    - `paper`: max(0, 1 - 2 |p - 1/2| - repetition_weight * s); 0 for a question that could not be posed.
    - `code`: min(p, 1 - p) - repetition_weight * s; -1 for a question that could not be posed.

    The question is the last block `<question>` of the final answer, or else the whole answer. For the environment's
    report, see `verl_agentic.graders.groups.self_play`.

    Args:
        repetition_weight: lambda; 1 in both forms.

    Paper: https://arxiv.org/abs/2508.05004. Deviations: clusters the questions of the group; the paper, those of the
    whole batch.
    """
    rates = [solve_rate(sample) for sample in samples]
    posed = [_extract_question(sample) for sample, rate in zip(samples, rates, strict=True) if rate is not None]
    shares = iter(cluster_shares(posed))
    values = []
    for rate in rates:
        if rate is None:
            values.append(0.0 if form == "paper" else -1.0)
            continue
        penalty = repetition_weight * next(shares) * len(posed) / len(samples)
        values.append(max(0.0, learnability(rate) - penalty) if form == "paper" else minority(rate) - penalty)
    highest = 1.0 if form == "paper" else 0.5
    return [Graded(value=value, solved=max(value, 0.0) / highest) for value in values]


def _extract_question(sample: Sample) -> str:
    return last_block([sample.final_answer], "question") or sample.final_answer
