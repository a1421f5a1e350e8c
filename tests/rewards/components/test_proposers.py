"""Self-play: what proposers earn, by how often a solver does their tasks."""

from __future__ import annotations

import pytest
from samples import graded, group_values, sample, value

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.graders.components.challenger_r_zero import challenger_r_zero
from verl_agentic.graders.components.proposer_absolute_zero import proposer_absolute_zero
from verl_agentic.graders.components.proposer_ssp import proposer_ssp
from verl_agentic.graders.text.clusters import cluster_shares, sentence_bleu
from verl_agentic.rewards.component import ABSTAIN
from verl_agentic.rewards.sample import Sample

# V-LEARN
RATES = [0, 0.125, 0.25, 0.5, 0.75, 0.875, 1]


def proposed(question: str = "Who?", **info: float) -> Sample:
    return sample("x", final_answer=question, outcome=0.0, info=info)


@pytest.mark.parametrize(
    ("form", "expected"),
    [("paper", [0, 0.25, 0.5, 1.0, 0.5, 0.25, 0]), ("code", [0, 0.125, 0.25, 0.5, 0.25, 0.125, 0])],
)
def test_the_challenger_earns_what_the_vector_says(form: str, expected: list[float]) -> None:
    group = [proposed(str(rate), solve_rate=rate) for rate in RATES]
    assert group_values(challenger_r_zero, group, form=form, repetition_weight=0.0) == pytest.approx(expected)


def test_questions_like_others_of_the_group_cost_the_share_of_their_cluster() -> None:
    same = "What is the sum of the first ten odd numbers that are primes?"
    texts = [same, same, same.replace("ten", "six"), "Who painted the ceiling of that chapel in Rome long ago?"]
    group = [proposed(text, solve_rate=0.5) for text in texts]
    assert group_values(challenger_r_zero, group) == pytest.approx([0.25, 0.25, 0.25, 0.75])  # 1 - 3/4, 1 - 1/4
    assert group_values(challenger_r_zero, group, form="code") == pytest.approx([-0.25, -0.25, -0.25, 0.25])


def test_only_the_question_of_an_answer_is_compared() -> None:
    one, other = "What is the sum of the first ten odd numbers?", "Who painted that chapel in Rome so long ago?"
    around = "I think about a question that is hard enough for a good student. <question>{}</question> The answer is 7."
    group = [proposed(around.format(text), solve_rate=0.5) for text in (one, other)]
    assert group_values(challenger_r_zero, group) == pytest.approx([0.5, 0.5])


def test_what_could_not_be_posed_earns_least_and_is_in_no_cluster() -> None:
    group = [proposed("a b c d", solve_rate=0.5), proposed("a b c d", well_formed=0.0)]
    assert group_values(challenger_r_zero, group) == pytest.approx([0.5, 0.0])
    assert group_values(challenger_r_zero, group, form="code") == pytest.approx([0.0, -1.0])


def test_options_of_the_challenger_are_checked() -> None:
    with pytest.raises(ConfigError, match="paper"):
        challenger_r_zero.make({"form": "seed"})
    with pytest.raises(ConfigError, match="repetition_weight"):
        challenger_r_zero.make({"repetition_weight": -1})


@pytest.mark.parametrize(("rate", "expected"), list(zip(RATES, [0, 0.875, 0.75, 0.5, 0.25, 0.125, 0], strict=True)))
def test_absolute_zero_pays_most_for_the_hardest_that_can_be_solved(rate: float, expected: float) -> None:
    assert value(proposer_absolute_zero, proposed(solve_rate=rate)) == expected


def test_absolute_zero_punishes_wrong_and_unreadable_tasks() -> None:
    assert value(proposer_absolute_zero, proposed(well_formed=1.0)) == -0.5
    assert value(proposer_absolute_zero, proposed(well_formed=0.0)) == -1.0


@pytest.mark.parametrize(
    ("form", "expected"),
    [("adversarial", [1, 0.875, 0.75, 0.5, 0.25, 0.125, 0]), ("intermediate", [0, 0.4375, 0.75, 1.0, 0.75, 0.4375, 0])],
)
def test_search_self_play_pays_as_in_the_vector(form: str, expected: list[float]) -> None:
    earned = [value(proposer_ssp, proposed(solve_rate=rate, rag_check=1.0), form=form) for rate in RATES]
    assert earned == pytest.approx(expected)


def test_a_question_that_fails_the_check_is_dropped() -> None:
    assert graded(proposer_ssp, proposed(solve_rate=0.0, rag_check=0.0)) == ABSTAIN
    assert graded(proposer_ssp, proposed(well_formed=0.0)) == ABSTAIN
    with pytest.raises(ScoringError, match="rag_check"):
        value(proposer_ssp, proposed(solve_rate=0.0))
    with pytest.raises(ConfigError, match="adversarial"):
        proposer_ssp.make({"form": "easy"})


def test_an_environment_that_reports_nothing_is_an_error_and_no_zero() -> None:
    with pytest.raises(ScoringError, match="solve_rate"):
        value(proposer_absolute_zero, sample("x"))
    with pytest.raises(ScoringError, match="well_formed"):
        value(proposer_absolute_zero, proposed())
    with pytest.raises(ScoringError, match="solve_rate"):
        value(proposer_absolute_zero, proposed(solve_rate=4.0))


def test_bleu_is_that_of_its_definition() -> None:
    # 5 words of 6; bigrams 3/5, trigrams 1/4, 4-grams 0 -> .1/3.
    one, other = ["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "lay", "on", "the", "mat"]
    assert sentence_bleu(one, other) == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * 0.1 / 3) ** 0.25)
    assert sentence_bleu(one, one) == pytest.approx(1.0)
    assert sentence_bleu(one, one[:4]) == pytest.approx(2.718281828 ** (1 - 6 / 4))
    assert sentence_bleu(one, ["dog"]) == sentence_bleu(one, []) == sentence_bleu([], one) == 0.0


def test_clusters_have_shares_of_the_group() -> None:
    assert cluster_shares(["a b", "a b", "c d", "e"]) == pytest.approx([0.5, 0.5, 0.25, 0.25])
    assert cluster_shares(["", "", "a"]) == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert cluster_shares([]) == []


def test_clusters_are_joined_by_their_mean_distance() -> None:
    one = "What is the sum of the first ten odd numbers that are primes?"
    assert cluster_shares([one, one]) == [1.0, 1.0]
    assert cluster_shares([one, one, one.replace("ten", "six"), one.replace("ten", "six")]) == [1.0] * 4
