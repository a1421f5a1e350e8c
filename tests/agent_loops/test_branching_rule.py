"""ARPO's rule of branching."""

from __future__ import annotations

import math
import random

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.methods.branching_rule import (
    Branching,
    branch_probability,
    entropy_rise,
    num_branches,
    sampled_entropy,
)


def test_the_chance_to_branch_is_that_of_the_vector() -> None:
    # V-ARPO-B
    chances = [branch_probability(rise) for rise in (-1, 0, 0.5, 1, 3)]
    assert chances == pytest.approx([0.3, 0.5, 0.6, 0.7, 1.0])
    assert branch_probability(-3) == 0.0
    assert branch_probability(2, probability=0.1, entropy_weight=0.4) == pytest.approx(0.9)


def test_the_chance_is_that_of_the_published_draw() -> None:
    # It branches where clip(u - 0.2 * rise, 0, 1) <= 0.5 for a uniform u.
    rng, draws, rise = random.Random(0), 20_000, 1.0
    branched = sum(min(1.0, max(0.0, rng.random() - 0.2 * rise)) <= 0.5 for _ in range(draws))
    chance = branch_probability(rise)
    assert abs(branched - draws * chance) <= 3 * math.sqrt(draws * chance * (1 - chance))


def test_the_entropy_of_uniform_draws_is_one_per_token_and_only_the_first_count() -> None:
    assert sampled_entropy([-math.log(50)] * 30, vocab_size=50) == pytest.approx(20.0)
    assert sampled_entropy([-math.log(50)] * 3, vocab_size=50) == pytest.approx(3.0)
    assert sampled_entropy([0.0] * 20 + [-9.0], vocab_size=50) == 0.0
    assert sampled_entropy([-1.0, -2.0, -4.0], vocab_size=50, max_tokens=2) == pytest.approx(3 / math.log(50))


def test_the_mean_over_draws_is_the_entropy_of_the_policy() -> None:
    # Two tokens from (.7, .2, .1): their entropies add up to 2 * .801819 nats.
    shares, rng, draws = (0.7, 0.2, 0.1), random.Random(3), 20_000
    entropy = -2 * sum(p * math.log(p) for p in shares) / math.log(3)
    estimates = [
        sampled_entropy([math.log(p) for p in rng.choices(shares, shares, k=2)], vocab_size=3) for _ in range(draws)
    ]
    assert sum(estimates) / draws == pytest.approx(entropy, abs=0.03)


def test_the_rise_compares_as_many_tokens_of_the_first_turn_as_the_later_one_has() -> None:
    first, unit = [-1.0, -2.0, *[-3.0] * 30], 1 / math.log(50)
    assert entropy_rise(first, [-4.0], vocab_size=50) == pytest.approx(3 * unit)
    assert entropy_rise(first, [-1.0, -1.0], vocab_size=50) == pytest.approx(-1 * unit)
    assert entropy_rise(first, [-3.0] * 40, vocab_size=50) == pytest.approx(3 * unit), "of 20 tokens each"
    assert entropy_rise(first, [-3.0] * 40, vocab_size=50, max_tokens=1) == pytest.approx(2 * unit)
    assert entropy_rise([-1.0], [-3.0] * 40, vocab_size=50) == pytest.approx(2 * unit)


def test_at_most_beam_minus_one_of_those_that_are_left_begin_at_a_place() -> None:
    always = {"rise": 5.0, "draw": lambda: 0.999}
    assert num_branches(Branching(), num_free=8, **always) == 1
    assert num_branches(Branching(beam=4), num_free=8, **always) == 3
    assert num_branches(Branching(beam=4), num_free=2, **always) == 2
    assert num_branches(Branching(), num_free=0, **always) == 0
    assert num_branches(Branching(), num_free=8, rise=-5.0, draw=lambda: 0.0) == 0


def test_each_of_them_is_drawn_for_itself() -> None:
    draws = iter([0.4, 0.6, 0.49])
    assert num_branches(Branching(beam=4), num_free=8, rise=0.0, draw=lambda: next(draws)) == 2


def test_the_defaults_are_those_of_the_published_scripts() -> None:
    made = read_settings(Branching, {}, section="x")
    assert (made.initial, made.beam, made.probability, made.entropy_weight, made.entropy_tokens) == (8, 2, 0.5, 0.2, 20)


def test_rollouts_that_can_never_branch_are_refused() -> None:
    Branching().check_rollout(group_size=16, has_log_probs=True)
    with pytest.raises(ConfigError, match=r"rollout\.n"):
        Branching().check_rollout(group_size=8, has_log_probs=True)
    with pytest.raises(ConfigError, match=r"rollout\.calculate_log_probs"):
        Branching().check_rollout(group_size=16, has_log_probs=False)
