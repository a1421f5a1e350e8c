"""Log-probs and entropies from hidden states equal those from all logits, with their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_agentic.credit.losses import token_log_probs as module
from verl_agentic.credit.losses.token_log_probs import token_log_probs

NUM_TOKENS, WIDTH, VOCAB = 37, 24, 301


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(NUM_TOKENS, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(VOCAB, WIDTH, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(VOCAB, (NUM_TOKENS,), generator=generator)
    return hidden, weight, labels, 1 / (0.4 + 2 * torch.rand(NUM_TOKENS, generator=generator))


def from_all_logits(hidden: Tensor, weight: Tensor, labels: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    log_probs = torch.log_softmax((hidden.double() @ weight.double().T) * scale[:, None].double(), dim=-1)
    return log_probs.gather(1, labels[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(dim=-1)


def gradients(outputs: tuple[Tensor, Tensor], *leaves: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, NUM_TOKENS, dtype=torch.float64)
    loss = sum((output.double() * (weights + i)).sum() for i, output in enumerate(outputs))
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("piece", [5, NUM_TOKENS, 1000])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_values_and_gradients_equal_those_of_all_logits(
    with_entropy: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE_LOGITS_CPU", piece * VOCAB)
    hidden, weight, labels, scale = inputs()
    ours = token_log_probs(hidden, weight, labels, scale, with_entropy=with_entropy)
    expected = from_all_logits(hidden, weight, labels, scale)
    if not with_entropy:
        assert not ours[1].any()
        ours, expected = (ours[0], ours[0] * 0), (expected[0], expected[0] * 0)
    for one, other in zip(
        (*ours, *gradients(ours, hidden, weight)), (*expected, *gradients(expected, hidden, weight)), strict=True
    ):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max().clamp(min=1.0)


def test_bfloat16_weights_give_float32_values_within_their_rounding() -> None:
    hidden, weight, labels, scale = inputs(torch.bfloat16)
    ours = token_log_probs(hidden, weight, labels, scale, with_entropy=True)
    expected = from_all_logits(hidden, weight, labels, scale)
    for one, other in zip(ours, expected, strict=True):
        assert one.dtype == torch.float32 and torch.allclose(one.double(), other, atol=0.1)
    for one, other in zip(gradients(ours, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert one.dtype == torch.bfloat16 and (one - other).norm() < 0.02 * other.norm()


def test_no_token_gives_a_gradient_of_zero() -> None:
    hidden, weight, labels, scale = inputs()
    log_probs, _ = token_log_probs(hidden[:0], weight, labels[:0], scale[:0], with_entropy=False)
    assert log_probs.shape == (0,)
    assert not torch.autograd.grad(log_probs.sum(), weight)[0].any()


def test_a_fixed_output_layer_gets_no_gradient() -> None:
    hidden, weight, labels, scale = inputs()
    log_probs, _ = token_log_probs(hidden, weight.detach(), labels, scale, with_entropy=False)
    assert torch.autograd.grad(log_probs.sum(), hidden)[0].any()
