"""Progressive reward shaping in stages: readable calls, valid calls and an answer, quality."""

from __future__ import annotations

import string

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.text.bleu import length_aware_bleu
from verl_agentic.rewards.answers.empty_work import is_empty
from verl_agentic.rewards.answers.short_answers import golden_answers_of, is_endless
from verl_agentic.rewards.answers.tool_calls import is_well_formed, was_carried_out
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def prs_reward(
    quality: float, *, is_readable: bool, is_in_form: bool, weights: tuple[float, float, float] = (0.1, 0.1, 0.8)
) -> float:
    """Returns the sum of the reached stages; a stage counts only if all earlier ones were reached.

    Args:
        quality: quality of the answer, from 0 to 1.
        is_readable: all calls could be read.
        is_in_form: all calls could be carried out, and there is an answer.
    """
    if not is_readable:
        return 0.0
    return weights[0] + (weights[1] + weights[2] * quality if is_in_form else 0.0)


def answer_bleu(answer: str, golden_answers: tuple[str, ...]) -> float:
    """Returns the best length-aware BLEU of an answer over the golden ones; lower case, without punctuation."""
    if is_endless(answer, golden_answers):
        return 0.0
    words = _split_words(answer)
    return max(length_aware_bleu(words, _split_words(golden)) for golden in golden_answers)


def _split_words(text: str) -> list[str]:
    return text.lower().translate(_PUNCTUATION).split()


def _check_options(readable: float, form: float, quality: float) -> None:
    if not min(readable, form, quality) >= 0:
        raise ConfigError(f"the stages of prs need weights of at least 0, got {readable}, {form} and {quality}")


@component(
    high=lambda readable, form, quality: readable + form + quality,
    kind="outcome",
    inline=True,
    info=("bleu",),
    check=_check_options,
)
def prs(sample: Sample, *, readable: float = 0.1, form: float = 0.1, quality: float = 0.8) -> Graded:
    """Returns `readable` + `form` + `quality` * BLEU, as far as the stages were reached.

    0 if a call cannot be read or the episode is empty; `readable` if a call cannot be carried out or there is no
    answer.

    BLEU is that of the final answer, without reasoning, against the best golden answer, with n-grams no longer than
    either (`bleu.length_aware_bleu`). `acc` is the BLEU of an answer that reached its stage. Abstains without ground
    truth, unless `quality` is 0.

    For long answers, let a judge give the quality: `{use: prs, options: {quality: 0.0}, kind: shaping, cap: 0.2}` and a
    judge with `only_if: {prs: 0.2}`.

    Args:
        readable, form, quality: weights of the three stages.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2512.07478. Deviations: the stages are the paper's; their weights and this form of BLEU
    are ours.
    """
    if quality and sample.ground_truth is None:
        return ABSTAIN
    answer = "" if is_empty(sample.final_answer) else without_thoughts(sample.final_answer)
    bleu = answer_bleu(answer, golden_answers_of(sample.ground_truth)) if quality else 0.0
    # An empty episode is not readable.
    is_readable = bool(answer or sample.calls) and all(map(is_well_formed, sample.calls))
    is_in_form = bool(answer) and all(map(was_carried_out, sample.calls))
    value = prs_reward(bleu, is_readable=is_readable, is_in_form=is_in_form, weights=(readable, form, quality))
    solved = bleu * (is_readable and is_in_form) if quality else None
    return Graded(value=value, info={"bleu": bleu}, solved=solved)
