"""HL-Gauss: a critic that classifies returns into bins. B rows, T tokens, N bins between N + 1 edges."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.credit.aggregate import masked


class BinSettings(Settings):
    """A critic that classifies returns into bins instead of regressing them: `agentic.critic.categorical`."""

    low: float = setting()
    """Lowest return that an episode can have."""
    high: float = setting()
    """Highest return that an episode can have."""
    bins: int = setting(min=2)
    """Number of bins between `low` and `high`."""

    def check_together(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"low must be below high, got {self.low} and {self.high}; change one of them")


def bin_edges(low: float, high: float, num_bins: int, *, device: torch.device | None = None) -> Tensor:
    """Returns `[N + 1]` float32 evenly spaced edges. Raises ConfigError if the range is empty or there are no bins."""
    if not low < high or num_bins < 1:
        raise ConfigError(
            f"bins need low < high and num_bins >= 1, got low={low}, high={high}, num_bins={num_bins}; "
            "take the minimum and the maximum return of an episode"
        )
    return torch.linspace(low, high, num_bins + 1, device=device)


def target_histogram(returns: Tensor, edges: Tensor, *, sigma_per_bin: float = 0.75) -> Tensor:
    """Returns `[..., N]` float32: the share of a Gaussian around the return that falls into every bin.

    Shares are `(F(e_n+1) - F(e_n)) / (F(e_N) - F(e_0))` with the Gaussian's F. Returns beyond the edges are clamped to
    the edge (ours), because the denominator would approach 0.

    Args:
        edges: `[N + 1]` float, evenly spaced.
        sigma_per_bin: standard deviation over the width of a bin; the default is the paper's.

    Paper: https://arxiv.org/abs/2403.03950 (appendix A)
    """
    edges = edges.float()
    sigma = sigma_per_bin * (edges[1] - edges[0])
    centered = edges - returns.float().clamp(edges[0], edges[-1]).unsqueeze(-1)
    cumulative = torch.erf(centered / (sigma * 2**0.5))
    return cumulative.diff(dim=-1) / (cumulative[..., -1:] - cumulative[..., :1])


def hl_gauss_loss(
    logits_BTN: Tensor, returns_BT: Tensor, mask_BT: Tensor, edges: Tensor, *, sigma_per_bin: float = 0.75
) -> Tensor:
    """Returns `[B, T]` float32: cross-entropy of the target histograms, 0 where the mask is 0.

    Args:
        returns_BT: `[B, T]` float: the critic's targets.
        edges: `[N + 1]` float, evenly spaced.
    """
    targets_BTN = target_histogram(returns_BT, edges, sigma_per_bin=sigma_per_bin)
    log_probs_BTN = _zero_masked(logits_BTN, mask_BT).log_softmax(dim=-1)
    return masked(-(targets_BTN * log_probs_BTN).sum(dim=-1), mask_BT)


def decode_values(logits_BTN: Tensor, mask_BT: Tensor, edges: Tensor) -> Tensor:
    """Returns `[B, T]` float32: the mean of the bins' centers, `sum p_n c_n`; 0 where the mask is 0."""
    edges = edges.float()
    centers = (edges[:-1] + edges[1:]) / 2
    return masked(_zero_masked(logits_BTN, mask_BT).softmax(dim=-1) @ centers, mask_BT)


def _zero_masked(logits_BTN: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.where(mask_BT.unsqueeze(-1), logits_BTN.float(), 0.0)
