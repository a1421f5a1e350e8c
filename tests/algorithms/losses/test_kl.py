"""Estimators of the KL divergence and their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.credit.losses.kl import MAX_K3, Estimator, kl_per_token, sequence_k3, trajectory_kl

Tensor = torch.Tensor
P, Q = [-1.0, -2.0, -0.7], [-1.5, -1.0, -0.7]
FLOATS = st.floats(-8, 0)


def estimate(
    kind: Estimator, p: list[float], q: list[float], *, old: list[float] | None = None
) -> tuple[Tensor, Tensor]:
    """Returns values and gradients of one row of tokens."""
    p_BT = torch.tensor([p], requires_grad=True)
    old_BT = p_BT.detach() if old is None else torch.tensor([old])
    value_BT = kl_per_token(
        kind,
        log_prob_BT=p_BT,
        ref_log_prob_BT=torch.tensor([q]),
        old_log_prob_BT=old_BT,
        mask_BT=torch.ones(1, len(p), dtype=torch.bool),
    )
    (slope_BT,) = torch.autograd.grad(value_BT.sum(), p_BT)
    return value_BT.detach()[0], slope_BT[0]


@pytest.mark.parametrize(
    ("kind", "values", "slope_at_second"),
    [
        ("k1", [0.5, -1.0, 0.0], 1.0),
        ("k2", [0.125, 0.5, 0.0], -1.0),
        ("k3", [0.106531, 0.718282, 0.0], -1.718282),
        ("k3_is", [0.106531, 0.718282, 0.0], -1.0),
    ],
)
def test_values_and_gradients_are_the_vector(kind: Estimator, values: list[float], slope_at_second: float) -> None:
    got, slopes = estimate(kind, P, Q)
    torch.testing.assert_close(got, torch.tensor(values), atol=1e-6, rtol=0)
    assert float(slopes[1]) == pytest.approx(slope_at_second, abs=1e-6)


@given(p=FLOATS, q=FLOATS, old=FLOATS)
def test_the_weighted_k3_is_the_ratio_times_k3_and_has_the_gradient_of_the_kl(p: float, q: float, old: float) -> None:
    """d(rho k3)/dp = rho (k3 + 1 - e^(q-p)) = rho (p - q)."""
    value, slope = estimate("k3_is", [p], [q], old=[old])
    ratio, difference = math.exp(p - old), q - p
    assert float(value) == pytest.approx(ratio * (math.exp(difference) - difference - 1), rel=1e-3, abs=1e-3)
    assert float(slope) == pytest.approx(ratio * (p - q), rel=1e-4, abs=1e-4)


def test_only_the_weighted_gradient_is_right_off_policy() -> None:
    """Exact sums over four actions that an old policy would have sampled, against the gradient of the true KL."""
    logits = torch.tensor([0.3, -0.2, 0.9, 0.0], requires_grad=True)
    ref, old = torch.tensor([0.1, 0.1, 0.4, 0.4]).log(), torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    mask = torch.ones(1, 4, dtype=torch.bool)

    def slope(total: Tensor) -> Tensor:
        return torch.autograd.grad(total, logits)[0]

    def expected(kind: Estimator) -> Tensor:
        estimates = kl_per_token(
            kind,
            log_prob_BT=logits.log_softmax(-1)[None],
            ref_log_prob_BT=ref[None],
            old_log_prob_BT=old[None],
            mask_BT=mask,
        )
        return slope((old.exp() * estimates[0]).sum())

    log_prob = logits.log_softmax(-1)
    exact = slope((log_prob.exp() * (log_prob - ref)).sum())
    torch.testing.assert_close(expected("k3_is"), exact)
    for kind in ("k1", "k2", "k3"):
        assert not torch.allclose(expected(kind), exact, atol=1e-2)


@given(p=FLOATS, q=FLOATS)
def test_k3_is_never_negative_and_bounded(p: float, q: float) -> None:
    value, _ = estimate("k3", [p], [q])
    assert 0.0 <= float(value) <= MAX_K3


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k3_is"])
def test_masked_tokens_are_exactly_zero(kind: Estimator, garbage: float) -> None:
    p_BT = torch.tensor([[-1.0, garbage]], requires_grad=True)
    value_BT = kl_per_token(
        kind,
        log_prob_BT=p_BT,
        ref_log_prob_BT=torch.tensor([[-1.5, -1.0]]),
        old_log_prob_BT=torch.tensor([[-1.0, -1.0]]),
        mask_BT=torch.tensor([[True, False]]),
    )
    (slope_BT,) = torch.autograd.grad(value_BT.sum(), p_BT)
    assert float(value_BT.detach()[0, 1]) == 0.0 and float(slope_BT[0, 1]) == 0.0
    assert bool(torch.isfinite(value_BT).all())


def test_the_kl_of_a_trajectory_is_the_vector() -> None:
    k1, mask_BT = torch.tensor([[0.1, -0.05, 0.2, 0.02]]), torch.tensor([[1, 1, 0, 1]]).bool()
    total_B = trajectory_kl(k1, torch.zeros(1, 4), mask_BT)
    per_step_BT = kl_per_token(
        "k1", log_prob_BT=k1, ref_log_prob_BT=torch.zeros(1, 4), old_log_prob_BT=k1, mask_BT=mask_BT
    )
    assert float(total_B) == pytest.approx(0.07)
    assert float(per_step_BT.sum() / 3) == pytest.approx(0.023333, abs=1e-6)
    assert float(trajectory_kl(k1, torch.zeros(1, 4), torch.ones_like(mask_BT))) == pytest.approx(0.27)


def test_the_gradient_of_the_kl_of_a_trajectory_is_its_sum_at_every_token() -> None:
    """Also that of the expectation: sum over texts of pi(text) * sum(k1) * grad log pi(text)."""
    p_BT = torch.tensor([[0.1, -0.05, 0.2, 0.02]], requires_grad=True)
    mask_BT = torch.tensor([[1, 1, 0, 1]]).bool()
    value_BT = kl_per_token(
        "trajectory", log_prob_BT=p_BT, ref_log_prob_BT=torch.zeros(1, 4), old_log_prob_BT=p_BT, mask_BT=mask_BT
    )
    (slope_BT,) = torch.autograd.grad(value_BT.sum(), p_BT)
    assert float(value_BT.detach().sum()) == pytest.approx(0.07)
    assert slope_BT.tolist() == [pytest.approx([0.07, 0.07, 0.0, 0.07])]


def test_the_k3_of_a_sequence_is_the_vector() -> None:
    difference = torch.tensor([[0.05, -0.1, 0.0, 0.1]])
    mask_BT = torch.ones(1, 4, dtype=torch.bool)
    assert float(sequence_k3(torch.zeros(1, 4), difference, mask_BT)) == pytest.approx(0.001271, abs=1e-6)
