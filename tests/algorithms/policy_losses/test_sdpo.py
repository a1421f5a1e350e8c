"""Self-distillation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
sdpo = load_policy_loss("sdpo")


def test_the_gradient_is_minus_the_vectors_reward(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-0.9, -0.6]], teacher_log_prob_BT=[[-0.2, -1.5]])
    loss = sdpo(batch)
    loss_BT = cast("Tensor", loss.per_token_BT)
    torch.testing.assert_close(loss_BT, torch.tensor([[-0.7 * -0.9, 0.9 * -0.6]]))
    (found,) = torch.autograd.grad(loss_BT.sum(), batch.log_prob_BT)
    torch.testing.assert_close(-found, torch.tensor([[0.7, -0.9]]))
    assert loss.metrics == pytest.approx({"sdpo_reward": -0.1, "sdpo_teacher_frac": 1.0})


def test_importance_weights_are_bounded_above(loss_batch: Make) -> None:
    batch = loss_batch(
        log_prob=[[-1.0] * 3],
        old_log_prob=[[-1.0 - math.log(ratio) for ratio in (0.5, 1.5, 8.0)]],
        teacher_log_prob_BT=[[-2.0] * 3],
    )
    (found,) = torch.autograd.grad(cast("Tensor", sdpo(batch).per_token_BT).sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, torch.tensor([[0.5, 1.5, 2.0]]))


def test_where_there_was_no_feedback_nothing_is_learned(loss_batch: Make) -> None:
    nan = float("nan")
    batch = loss_batch(
        log_prob=[[-0.9, -0.6], [-0.9, -0.6]], mask=[[1, 1], [1, 0]], teacher_log_prob_BT=[[-0.2, -1.5], [nan, nan]]
    )
    loss = sdpo(batch)
    (found,) = torch.autograd.grad(cast("Tensor", loss.per_token_BT).sum(), batch.log_prob_BT)
    torch.testing.assert_close(found, torch.tensor([[-0.7, 0.9], [0.0, 0.0]]))
    assert loss.metrics["sdpo_teacher_frac"] == pytest.approx(2 / 3)


def test_importance_weights_of_the_rollout_count(loss_batch: Make) -> None:
    batch = loss_batch(log_prob=[[-0.9, -0.6]], teacher_log_prob_BT=[[-0.2, -1.5]], is_weights_BT=[[0.5, 2.0]])
    (found,) = torch.autograd.grad(cast("Tensor", sdpo(batch).per_token_BT).sum(), batch.log_prob_BT)
    torch.testing.assert_close(-found, torch.tensor([[0.35, -1.8]]))


# The policy gives a token 1/2, the teacher 9/10: their mixture is (7/10, 3/10).
HALF = [math.log(0.5), math.log(0.5)]
SURE = [math.log(0.9), math.log(0.1)]


@pytest.mark.parametrize(
    ("alpha", "expected", "slope"),
    [
        # 1/2 (1/2 ln 5/7 + 1/2 ln 5/3) + 1/2 (9/10 ln 9/7 + 1/10 ln 1/3); (1/2) (1/2) (1/2 ln 5/7 - 1/2 ln 5/3)
        (0.5, 0.1017492, -0.1059122),
        (0.0, 0.3680642, -0.4),  # 9/10 ln 9/5 + 1/10 ln 1/5; 1/2 - 9/10
        (1.0, 0.5108256, -0.5493061),  # 1/2 ln 5/9 + 1/2 ln 5; (1/2) (1/2) (ln 5/9 - ln 5)
    ],
)
def test_two_tokens_diverge_as_by_hand(loss_batch: Make, alpha: float, expected: float, slope: float) -> None:
    logits = torch.tensor([[[0.3, 0.3]]], requires_grad=True)
    batch = loss_batch(
        log_prob=[[HALF[0]]],
        teacher_log_prob_BT=[[SURE[0]]],
        top_log_prob_BTK=logits.log_softmax(dim=-1),
        teacher_top_log_prob_BTK=[[SURE]],
    )
    loss = sdpo(batch, alpha=alpha, top_tokens=2)
    loss_BT = cast("Tensor", loss.per_token_BT)
    torch.testing.assert_close(loss_BT, torch.tensor([[expected]]), atol=3e-6, rtol=0)
    assert loss.metrics["sdpo_divergence"] == pytest.approx(expected, abs=3e-6)
    (found,) = torch.autograd.grad(loss_BT.sum(), logits)
    torch.testing.assert_close(found, torch.tensor([[[slope, -slope]]]), atol=3e-6, rtol=0)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_all_other_tokens_count_as_one(loss_batch: Make, alpha: float) -> None:
    def loss_of(policy: list[float], teacher: list[float]) -> Tensor:
        batch = loss_batch(
            log_prob=[[HALF[0]]],
            teacher_log_prob_BT=[[SURE[0]]],
            top_log_prob_BTK=torch.tensor([[policy]]).log(),
            teacher_top_log_prob_BTK=torch.tensor([[teacher]]).log(),
        )
        return cast("Tensor", sdpo(batch, alpha=alpha, top_tokens=len(policy)).per_token_BT)

    whole = loss_of([0.5, 0.5], [0.9, 0.1])
    # Of three tokens, the last two are not among the most likely: together they have 1/2 and 1/10.
    torch.testing.assert_close(loss_of([0.5], [0.9]), whole, atol=3e-6, rtol=0)
    torch.testing.assert_close(loss_of([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]), torch.zeros(1, 1), atol=3e-6, rtol=0)
    assert float(loss_of([0.5, 0.3, 0.2], [0.9, 0.02, 0.08])) > float(whole), "a finer partition tells more apart"


def test_the_divergence_is_weighed_and_masked_as_sampled_tokens_are(loss_batch: Make) -> None:
    nan = float("nan")
    batch = loss_batch(
        log_prob=[[-1.0] * 4],
        old_log_prob=[[-1.0, -1.0 - math.log(0.5), -1.0 - math.log(8.0), -1.0]],
        mask=[[1, 1, 1, 0]],
        teacher_log_prob_BT=[[-2.0, -2.0, -2.0, -2.0]],
        top_log_prob_BTK=torch.tensor([[HALF, HALF, HALF, [nan, nan]]], requires_grad=True),
        teacher_top_log_prob_BTK=[[SURE, SURE, SURE, [nan, -math.inf]]],
    )
    loss_BT = cast("Tensor", sdpo(batch, alpha=0.5, top_tokens=2).per_token_BT)
    expected = torch.tensor([[0.1017492, 0.0508746, 0.2034984, 0.0]])
    torch.testing.assert_close(loss_BT, expected, atol=6e-6, rtol=0)
    (found,) = torch.autograd.grad(loss_BT.sum(), cast("Tensor", batch.top_log_prob_BTK))
    assert bool(torch.isfinite(found).all()) and not found[0, 3].any() and bool(found[0, :3].any())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.5}, "top_tokens"),
        ({"alpha": 1.5, "top_tokens": 2}, "alpha=1.5"),
        ({"alpha": -0.1, "top_tokens": 2}, "alpha=-0.1"),
        ({"top_tokens": -1}, "top_tokens=-1"),
        ({"top_tokens": 2}, "agentic_"),
    ],
)
def test_a_divergence_without_its_tokens_is_refused(loss_batch: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sdpo(loss_batch(log_prob=[[-1.0]], teacher_log_prob_BT=[[-1.0]]), **options)


def test_a_bound_that_is_not_positive_is_refused(loss_batch: Make) -> None:
    with pytest.raises(ConfigError, match="is_clip"):
        sdpo(loss_batch(log_prob=[[-1.0]], teacher_log_prob_BT=[[-1.0]]), is_clip=0)
