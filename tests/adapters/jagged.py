"""Rows of different lengths, as verl's engines hold them."""

from __future__ import annotations

from typing import Any

import torch


def nested(*rows: list[float], **kwargs: Any) -> torch.Tensor:
    """Returns rows as a nested tensor."""
    return torch.nested.as_nested_tensor([torch.tensor(row, **kwargs) for row in rows], layout=torch.jagged)


def log_probs_of(*rows: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns leaf values and the nested tensor that is made of them."""
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    leaf = torch.tensor([value for row in rows for value in row], requires_grad=True)
    return leaf, torch.nested.nested_tensor_from_jagged(leaf, lengths.cumsum(0))


MASK = nested([0, 1, 0, 1], [0, 0, 1], [0, 1], [0, 0, 1])
# A place tells of the token behind it: what counts are places 0 and 2, then 1, then 0, then 1.
ROWS = [[-1.0, -5.0, -2.0, -9.0], [-7.0, -0.5, -9.0], [-4.0, -9.0], [-6.0, -1.0, -9.0]]
"""Worth -3, -0.5, -4 and -1."""
