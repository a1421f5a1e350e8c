"""Log-probs and entropies of tokens from hidden states and the weights of the output layer.

The array `[tokens, vocabulary]` of logits exists in pieces only, in the backward pass as well, which computes each
piece again.

Axes: N tokens, D hidden size, V vocabulary, R tokens of a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_PIECE_LOGITS_CPU = 1 << 21
"""8 MiB of float32, which stay in the cache of a processor."""
_PIECE_LOGITS_GPU = 1 << 27


def token_log_probs(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, scale_N: Tensor, *, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Returns the log-probs of labels, and the entropies, of `softmax(scale * hidden @ weight.T)`.

    Args:
        hidden_ND: hidden states, of the type of the weights.
        weight_VD: weights of the output layer, without bias.
        labels_N: ids of tokens.
        scale_N: 1 / temperature of each token, float32.
        with_entropy: whether entropies are asked for.

    Returns:
        Log-probs and entropies in nats, float32 `[N]`; entropies are 0 where none are asked for.
    """
    return _TokenLogProbs.apply(hidden_ND, weight_VD, labels_N, scale_N, with_entropy)  # type: ignore[no-any-return]


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, scale_N: Tensor, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        log_total_N, log_prob_N, entropy_N = (torch.zeros_like(scale_N) for _ in range(3))
        for piece in _iter_pieces(hidden_ND, weight_VD):
            logits_RV = _compute_logits(hidden_ND[piece], weight_VD, scale_N[piece])
            log_probs_RV = torch.log_softmax(logits_RV, dim=-1)
            labels_R1 = labels_N[piece, None]
            log_prob_N[piece] = log_probs_RV.gather(1, labels_R1)[:, 0]
            log_total_N[piece] = logits_RV.gather(1, labels_R1)[:, 0] - log_prob_N[piece]
            if with_entropy:
                entropy_N[piece] = -torch.linalg.vecdot(log_probs_RV.exp(), log_probs_RV)
        ctx.save_for_backward(hidden_ND, weight_VD, labels_N, scale_N, log_total_N, entropy_N)
        ctx.with_entropy = with_entropy
        return log_prob_N, entropy_N

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, log_prob_grad_N: Tensor, entropy_grad_N: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_ND, weight_VD, labels_N, scale_N, log_total_N, entropy_N = ctx.saved_tensors
        hidden_grad_ND = torch.empty_like(hidden_ND)
        weight_grad_VD = torch.zeros_like(weight_VD, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for piece in _iter_pieces(hidden_ND, weight_VD):
            log_probs_RV = _compute_logits(hidden_ND[piece], weight_VD, scale_N[piece]).sub_(log_total_N[piece, None])
            probs_RV = log_probs_RV.exp()
            if ctx.with_entropy:  # of the entropy: -p (log p + H)
                grad_RV = log_probs_RV.add_(entropy_N[piece, None]).mul_(-entropy_grad_N[piece, None])
                grad_RV.sub_(log_prob_grad_N[piece, None]).mul_(probs_RV)
            else:
                grad_RV = probs_RV.mul_(-log_prob_grad_N[piece, None])
            grad_RV.scatter_add_(1, labels_N[piece, None], log_prob_grad_N[piece, None])
            grad_RV.mul_(scale_N[piece, None])
            typed_grad_RV = grad_RV.to(weight_VD.dtype)
            hidden_grad_ND[piece] = typed_grad_RV @ weight_VD
            if weight_grad_VD is not None:
                if grad_RV.is_cuda and weight_VD.dtype != torch.float32:
                    weight_grad_VD += typed_grad_RV.T @ hidden_ND[piece]
                else:  # a CPU takes longer to add 16-bit numbers to float32 than for the product in float32
                    weight_grad_VD.addmm_(grad_RV.T, hidden_ND[piece].float())
        return hidden_grad_ND, None if weight_grad_VD is None else weight_grad_VD.to(weight_VD.dtype), None, None, None


def _compute_logits(hidden_RD: Tensor, weight_VD: Tensor, scale_R: Tensor) -> Tensor:
    return (hidden_RD @ weight_VD.T).float().mul_(scale_R[:, None])


def _iter_pieces(hidden_ND: Tensor, weight_VD: Tensor) -> Iterator[slice]:
    """Yields slices of tokens: as many as fit, and so many that adding up gradients of the weights is no bottleneck."""
    logits = _PIECE_LOGITS_GPU if hidden_ND.is_cuda else _PIECE_LOGITS_CPU
    size = max(logits // weight_VD.shape[0], weight_VD.shape[1] // 4, 1)
    for start in range(0, len(hidden_ND), size):
        yield slice(start, start + size)
