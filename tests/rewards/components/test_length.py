"""Length: what is too long costs little, has a bound, and counts only what the policy wrote."""

from __future__ import annotations

import pytest
from samples import call, sample, turn, value

from verl_agentic.base.errors import ConfigError, ScoringError
from verl_agentic.base.types import StopReason
from verl_agentic.graders.components.length_sigmoid import length_sigmoid
from verl_agentic.rewards.component import ComponentType
from verl_agentic.rewards.components.length_linear import length_linear
from verl_agentic.rewards.components.length_on_failure import length_on_failure
from verl_agentic.rewards.components.overlong import overlong
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import is_overlong


def turns(count: int, **options: object) -> Sample:
    return sample(["x"] * count, **options)  # type: ignore[arg-type]


# V-LENPEN: an outcome of 1, T turns, target 10, .05 per turn, tau 5.
@pytest.mark.parametrize(
    ("count", "linear", "sigmoid"), [(5, 1.0, 0.731059), (10, 1.0, 0.5), (15, 0.75, 0.268941), (30, 0.0, 0.017986)]
)
def test_penalties_are_those_of_the_vector(count: int, linear: float, sigmoid: float) -> None:
    assert 1.0 + (value(length_linear, turns(count), max_penalty=1.0) or 0.0) == pytest.approx(linear)
    assert 1.0 + (value(length_sigmoid, turns(count)) or 0.0) == pytest.approx(sigmoid, abs=1e-6)


def test_the_linear_penalty_has_a_bound() -> None:
    # V-COMPOSITE-CAP: 30 turns too many cost .2, not 1.5.
    assert value(length_linear, turns(40)) == pytest.approx(-0.2)
    assert (length_linear.make({}).low, length_linear.make({"max_penalty": 0.5}).low) == (-0.2, -0.5)


def test_the_sigmoid_does_not_overflow() -> None:
    assert value(length_sigmoid, sample("x", num_tokens=[10**9]), unit="tokens", scale=1e-3) == -1.0
    assert value(length_sigmoid, sample("x"), target=10**9, scale=1e-3) == 0.0


def test_length_is_counted_in_turns_calls_or_tokens_of_the_policy() -> None:
    episode = sample([turn("a b c", call(), call(), observations=["w " * 1000] * 2), "d"])
    costs = [value(length_linear, episode, target=0, per_step=0.01, unit=u) for u in ("turns", "calls", "tokens")]
    assert costs == pytest.approx([-0.02, -0.02, -0.04])
    with pytest.raises(ConfigError, match="'words'"):
        value(length_linear, episode, unit="words")


def test_only_failures_pay_for_their_length() -> None:
    # D63: .05 per turn beyond 10.
    failed, solved = turns(14, outcome=0.0), turns(14, outcome=1.0)
    assert value(length_on_failure, failed) == pytest.approx(-0.2)
    assert value(length_on_failure, turns(12, outcome=0.0)) == pytest.approx(-0.1)
    assert value(length_on_failure, turns(40, outcome=0.0)) == pytest.approx(-0.2)
    assert value(length_on_failure, solved) == 0.0
    assert value(length_on_failure, turns(10, outcome=0.0)) == 0.0
    assert value(length_on_failure, turns(14, outcome=0.5), solved_at=0.5) == 0.0
    with pytest.raises(ScoringError, match="length_linear"):
        value(length_on_failure, turns(14))


# V-OVERLONG: 20480 and 4096.
@pytest.mark.parametrize(
    ("tokens", "punishment"), [(16000, 0.0), (16384, 0.0), (17408, -0.25), (18432, -0.5), (20480, -1.0), (25000, -1.0)]
)
def test_the_soft_punishment_is_linear_and_stays_at_minus_one(tokens: int, punishment: float) -> None:
    assert value(overlong, sample("x", num_tokens=[tokens])) == punishment


def test_what_tools_answer_is_not_punished() -> None:
    # D16: 1,000 tokens of the policy and 19,000 of its tools; counted together they would cost .88.
    assert value(overlong, sample([turn("x", call(), observations=["w " * 19_000], num_tokens=1000)])) == 0.0
    assert value(overlong, sample("x", num_tokens=[20_000])) == pytest.approx(-0.8828125)


@pytest.mark.parametrize(
    ("component", "options", "says"),
    [
        (overlong, {"buffer_tokens": 0}, "buffer_tokens"),
        (overlong, {"max_tokens": 100}, "buffer_tokens"),
        (length_sigmoid, {"scale": 0}, "scale"),
    ],
)
def test_options_that_cannot_work_are_refused(component: ComponentType, options: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        component.make(options)


@pytest.mark.parametrize(
    ("reason", "tokens", "limit", "overlong_"),
    [
        (StopReason.MAX_TOKENS, 1, 0, True),
        (StopReason.CONTEXT_FULL, 1, 0, True),
        (StopReason.ANSWERED, 10**6, 0, False),
        (StopReason.ANSWERED, 100, 100, False),
        (StopReason.ANSWERED, 101, 100, True),
        (StopReason.ANSWERED, 2, 1, True),
        (StopReason.MAX_TURNS, 1, 100, False),
    ],
)
def test_overlong_is_what_was_cut_off_or_passes_the_limit(
    reason: StopReason, tokens: int, limit: int, overlong_: bool
) -> None:
    episode = sample([turn("x", call(), observations=["w " * 1000], num_tokens=tokens)], stop_reason=reason)
    assert is_overlong(episode, max_tokens=limit) is overlong_


def test_the_filter_masks_as_in_the_vector() -> None:
    # V-OVERFILTER: 4 tokens of loss 1, 6 of loss 3 that were cut off; mean over tokens 1.0 and not 2.2.
    group = [sample("x", num_tokens=[4]), sample("x", num_tokens=[6], stop_reason=StopReason.MAX_TOKENS)]
    losses: dict[int, float] = {4: 1.0, 6: 3.0}

    def mean_loss(samples: list[Sample]) -> float:
        counts = [one.num_model_tokens for one in samples]
        return sum(count * losses[count] for count in counts) / sum(counts)

    assert mean_loss([one for one in group if not is_overlong(one)]) == 1.0
    assert mean_loss(group) == pytest.approx(2.2)
