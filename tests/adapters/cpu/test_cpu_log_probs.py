"""Log-probs in large pieces are those of one token at a time, and so are their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_agentic.verl.extensions.cpu import cpu_log_probs


def _one_by_one(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([row[label] - row.logsumexp(-1) for row, label in zip(logits, labels, strict=True)])


@pytest.mark.parametrize("tokens_per_piece", [1, 3, 1_000])
def test_pieces_give_the_log_probs_and_gradients_of_single_tokens(
    tokens_per_piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_log_probs, "_LOGITS_PER_PIECE", tokens_per_piece * 11)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 11, (7,), generator=generator)
    weights = torch.randn(7, generator=generator, dtype=torch.float64)
    logits = 30 * torch.randn(7, 11, generator=generator, dtype=torch.float64)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found, expected = cpu_log_probs.log_probs_of_labels(ours, labels), _one_by_one(theirs, labels)
    torch.testing.assert_close(found, expected)
    (found @ weights).backward()
    (expected @ weights).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_shape_is_that_of_the_labels_and_no_tokens_give_none() -> None:
    assert cpu_log_probs.log_probs_of_labels(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3)
    assert cpu_log_probs.log_probs_of_labels(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)).shape == (0,)
