"""Returns as histograms."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError
from verl_agentic.methods.losses.hl_gauss import bin_edges, decode_values, hl_gauss_loss, target_histogram

EDGES = bin_edges(0.0, 1.0, 5)
PROBS = torch.tensor([0.235091, 0.50654, 0.235091, 0.022841, 0.000437])


def test_the_histogram_and_its_mean_are_the_vector() -> None:
    torch.testing.assert_close(target_histogram(torch.tensor(0.3), EDGES), PROBS, atol=1e-6, rtol=0)
    value = decode_values(PROBS.log()[None, None], torch.ones(1, 1, dtype=torch.bool), EDGES)
    assert float(value) == pytest.approx(0.309399, abs=1e-6)


@given(value=st.floats(-1e6, 1e6))
def test_a_histogram_sums_to_one_wherever_the_return_lies(value: float) -> None:
    probs = target_histogram(torch.tensor(value), EDGES)
    assert float(probs.sum()) == pytest.approx(1.0, abs=1e-5)
    assert bool((probs >= 0).all())


def test_beyond_the_edges_a_return_is_the_edge() -> None:
    assert torch.equal(
        target_histogram(torch.tensor([-7.0, 9.0]), EDGES), target_histogram(torch.tensor([0.0, 1.0]), EDGES)
    )


def test_a_fine_histogram_decodes_to_the_return() -> None:
    edges, values = bin_edges(-1.0, 1.0, 101), torch.tensor([[-0.5, 0.0, 0.73]])
    decoded = decode_values(target_histogram(values, edges).log(), torch.ones(1, 3, dtype=torch.bool), edges)
    torch.testing.assert_close(decoded, values, atol=1e-4, rtol=0)


def test_the_loss_is_the_cross_entropy_and_its_gradient_the_difference_of_probabilities() -> None:
    logits = torch.zeros(1, 2, 5, requires_grad=True)
    mask = torch.tensor([[True, False]])
    loss_BT = hl_gauss_loss(logits, torch.tensor([[0.3, 0.9]]), mask, EDGES)
    # Of a uniform guess: ln 5, whatever the target.
    torch.testing.assert_close(loss_BT, torch.tensor([[1.609438, 0.0]]), atol=1e-5, rtol=0)
    (slope,) = torch.autograd.grad(loss_BT.sum(), logits)
    torch.testing.assert_close(slope[0, 0], 0.2 - PROBS, atol=1e-6, rtol=0)
    assert bool((slope[0, 1] == 0).all())


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
def test_masked_tokens_have_no_influence(garbage: float) -> None:
    mask = torch.tensor([[True, False]])

    def run(filler: float) -> list[torch.Tensor]:
        logits = torch.tensor([[[0.1, 0.2, 0.3, 0.4, 0.5], [filler] * 5]], requires_grad=True)
        loss_BT = hl_gauss_loss(logits, torch.tensor([[0.3, filler]]), mask, EDGES)
        (slope,) = torch.autograd.grad(loss_BT.sum(), logits)
        value_BT = decode_values(logits, mask, EDGES)
        (value_slope,) = torch.autograd.grad(value_BT.sum(), logits)
        return [loss_BT, slope, value_BT, value_slope]

    assert all(torch.equal(a, b) for a, b in zip(run(garbage), run(0.0), strict=True))


def test_the_width_of_the_gaussian_counts_in_bins() -> None:
    coarse, fine = bin_edges(0.0, 10.0, 5), EDGES
    torch.testing.assert_close(
        target_histogram(torch.tensor(3.0), coarse, sigma_per_bin=0.4),
        target_histogram(torch.tensor(0.3), fine, sigma_per_bin=0.4),
    )


@pytest.mark.parametrize(("low", "high", "count"), [(1.0, 1.0, 5), (1.0, 0.0, 5), (0.0, 1.0, 0)])
def test_bins_that_cannot_be_are_refused(low: float, high: float, count: int) -> None:
    with pytest.raises(ConfigError, match="bins need low < high"):
        bin_edges(low, high, count)
