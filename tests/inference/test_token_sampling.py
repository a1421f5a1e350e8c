"""Each parameter against a small reference over one fixed distribution."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError, PolicyError
from verl_agentic.cpu.inference import token_sampling
from verl_agentic.cpu.inference.decode_rows import DecodeRows
from verl_agentic.cpu.inference.request import Running, SamplingParams
from verl_agentic.cpu.inference.token_sampling import read_sampled

LOGITS = [2.0, 1.0, 0.5, 0.0, -1.0, -3.0]
DRAWS = 4000


def row(*, seen: tuple[int, ...] = (), **params: Any) -> Running:
    return Running(
        prompt_ids=seen, params=SamplingParams(**params), max_tokens=1, stop_ids=frozenset(), deliver=lambda _: None
    )


def make_rows(requests: list[Running], vocab_size: int, *, seed: int = 0) -> DecodeRows:
    rows = DecodeRows(len(requests), vocab_size=vocab_size, device=torch.device("cpu"), seed=seed)
    for request in requests:
        rows.add(request, stop_key=0)
    return rows


def sample(logits: torch.Tensor, requests: list[Running], *, seed: int = 0) -> tuple[list[int], list[float]]:
    sampling = make_rows(requests, logits.shape[-1], seed=seed).sampling(slice(0, len(requests)))
    ids, log_probs = read_sampled(token_sampling.sample(logits, sampling))
    return ids.tolist(), log_probs.tolist()


def frequencies(*, seen: tuple[int, ...] = (), **params: Any) -> dict[int, float]:
    """Returns how often each id was drawn."""
    rows = [row(seen=seen, **params)] * DRAWS
    logits = torch.tensor(LOGITS).expand(DRAWS, -1)
    ids, _ = sample(logits, rows)
    return {token: count / DRAWS for token, count in Counter(ids).items()}


def softmax(values: dict[int, float]) -> dict[int, float]:
    total = sum(math.exp(value) for value in values.values())
    return {token: math.exp(value) / total for token, value in values.items()}


def assert_close(got: dict[int, float], expected: dict[int, float]) -> None:
    assert set(got) <= set(expected)
    for token, probability in expected.items():
        # Five standard deviations of a frequency over DRAWS draws.
        assert got.get(token, 0.0) == pytest.approx(probability, abs=5 * math.sqrt(0.25 / DRAWS))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_divides_logits(temperature: float) -> None:
    assert_close(
        frequencies(temperature=temperature), softmax({i: logit / temperature for i, logit in enumerate(LOGITS)})
    )


def test_temperature_0_takes_the_largest() -> None:
    assert frequencies(temperature=0.0) == {0: 1.0}


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_top_k_keeps_the_k_largest(top_k: int) -> None:
    assert_close(frequencies(top_k=top_k), softmax(dict(enumerate(LOGITS[:top_k]))))


@pytest.mark.parametrize("top_k", [-1, 0, 6, 100])
def test_top_k_that_removes_nothing(top_k: int) -> None:
    assert_close(frequencies(top_k=top_k), softmax(dict(enumerate(LOGITS))))


# LOGITS have the probabilities 0.561 0.206 0.125 0.076 0.028 0.004; cumulated 0.561 0.767 0.892 0.968 0.996 1.
@pytest.mark.parametrize(("top_p", "kept"), [(0.3, 1), (0.55, 1), (0.6, 2), (0.78, 3), (0.9, 4), (0.99, 5), (1.0, 6)])
def test_top_p_keeps_the_fewest_that_reach_the_mass(top_p: float, kept: int) -> None:
    assert_close(frequencies(top_p=top_p), softmax(dict(enumerate(LOGITS[:kept]))))


def test_top_p_counts_the_mass_that_top_k_and_temperature_leave() -> None:
    # At temperature 2 the two largest have exp(1) : exp(0.5) = 0.622 : 0.378; 0.6 is reached by the first alone,
    # while over all six ids it would take three.
    assert frequencies(temperature=2.0, top_k=2, top_p=0.6) == {0: 1.0}


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_seen_ids() -> None:
    expected = softmax({0: 1.0, 1: 1.0, 2: 0.5, 3: 0.0, 4: -2.0, 5: -3.0})
    assert_close(frequencies(seen=(0, 0, 4), repetition_penalty=2.0), expected)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.7},
        {"temperature": 2.0, "top_k": 2},
        {"top_p": 0.5},
        {"repetition_penalty": 3.0},
        {"temperature": 1.0},
    ],
)
def test_the_log_prob_is_the_trainers_whatever_shaped_the_choice(params: dict[str, float]) -> None:
    rows = [row(seen=(0, 1), **params), row(temperature=0.0)]
    ids, log_probs = sample(torch.tensor([LOGITS, LOGITS]), rows, seed=1)
    for token, log_prob, temperature in zip(ids, log_probs, (params.get("temperature", 1.0), 1.0), strict=True):
        expected = math.log(softmax({i: logit / temperature for i, logit in enumerate(LOGITS)})[token])
        assert log_prob == pytest.approx(expected, abs=1e-6)


def test_rows_with_their_own_seed_do_not_depend_on_their_neighbours() -> None:
    def draw(neighbours: int, seed_of_all: int) -> list[int]:
        seeded = row()
        seeded.generator = torch.Generator().manual_seed(7)
        rows = make_rows([row() for _ in range(neighbours)] + [seeded], len(LOGITS), seed=seed_of_all)
        logits = torch.tensor(LOGITS).expand(neighbours + 1, -1)
        everyone = slice(0, neighbours + 1)
        return [int(token_sampling.sample(logits, rows.sampling(everyone))[0, -1]) for _ in range(50)]

    assert draw(0, 0) == draw(5, 1)
    assert len(set(draw(0, 0))) > 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("max_tokens", 0),
        ("repetition_penalty", 0.0),
        ("stop", ("",)),
    ],
)
def test_values_out_of_range_are_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be .*, got "):
        SamplingParams(**{name: value})


def test_only_allowed_ids_are_sampled_and_log_probs_stay_those_of_the_vocabulary() -> None:
    assert_close(frequencies(allowed_token_ids=(3, 1)), softmax({1: 1.0, 3: 0.0}))
    ids, log_probs = sample(torch.tensor([LOGITS]), [row(allowed_token_ids=(4,))])
    assert ids == [4] and log_probs[0] == pytest.approx(math.log(softmax(dict(enumerate(LOGITS)))[4]))
    assert SamplingParams.from_mapping({"allowed_token_ids": [4]}).allowed_token_ids == (4,)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.0}, {"top_k": 2}, {"allowed_token_ids": (1,)}])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("width", [3, 700])
def test_logits_that_are_no_distribution_are_an_error(width: int, bad: float, params: dict[str, Any]) -> None:
    logits = torch.zeros(2, width)
    logits[1, 1:] = bad
    logits[1, 0] = -math.inf
    with pytest.raises(PolicyError, match="1 of 2 rows"):
        sample(logits, [row(), row(**params)])


def test_a_logit_of_minus_infinity_is_never_drawn() -> None:
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0]).expand(100, -1)
    rows = [row(), row(temperature=0.0), row(top_k=3), row(top_p=0.9)] * 25
    ids, log_probs = sample(logits, rows)
    assert set(ids) == {1, 3} and log_probs == pytest.approx([-math.log(2)] * 100)


@given(st.lists(st.sampled_from([0.0, 1e-30, 0.1, 0.3, 1.0, 7.0]), min_size=1, max_size=700), st.integers(0, 2**53 - 1))
def test_the_id_at_a_share_of_the_mass_is_that_of_the_cumulative_sum(masses: list[float], numerator: int) -> None:
    assume(sum(masses) > 1e-3)
    share = numerator / 2**53
    drawn = int(token_sampling._draw_ids(torch.tensor([masses]), torch.tensor([share], dtype=torch.float64)))
    assert masses[drawn] > 0.0
    ends = list(itertools.accumulate(masses))
    error = 1e-5 * ends[-1]
    assert ends[drawn] - masses[drawn] - error <= share * ends[-1] <= ends[drawn] + error


@pytest.mark.parametrize("share", [0.0, 1 - 2.0**-53])
def test_an_id_without_mass_is_never_drawn_at_the_ends(share: float) -> None:
    masses = torch.rand(8, 3000)
    masses[:, :300] = masses[:, 2600:] = 0.0
    drawn = token_sampling._draw_ids(masses, torch.full((8,), share, dtype=torch.float64))
    assert drawn.tolist() == [300 if share == 0.0 else 2599] * 8
