"""Weights in the order of oneDNN's kernels, which a CPU multiplies with few rows faster than plain ones.

torch packs a plain weight again for each product, which costs as much as the product with a few dozen rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_MIN_WIDTH = 512
"""Width of a model from which on the faster product is worth the slower call."""
_NUM_ROWS = 64
"""Rows of the products for which the order is chosen."""


def can_pack(weight: Tensor) -> bool:
    """Returns whether a model with this weight `[..., width]` is faster with packed ones: wide, float32, on a CPU."""
    return (
        weight.shape[-1] >= _MIN_WIDTH
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    )


def pack_weight(weight: Tensor) -> Tensor:
    """Returns a packed copy of a weight `[outputs, inputs]`."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _NUM_ROWS)


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns `x @ weight.T + bias`; the weight may be packed."""
    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)
