"""verl's config of FSDP critics with a place for a categorical value head: `critic.categorical: {low, high, bins}`."""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.config import critic

from verl_agentic.algorithms.hl_gauss import bin_edges
from verl_agentic.errors import ConfigError

VALUE_BINS = "value_bins"
"""Attribute of the critic's Hugging Face config that holds the section: workers get it, and checkpoints keep it."""


@dataclasses.dataclass
class FSDPCriticConfig(critic.FSDPCriticConfig):
    """verl's, and `categorical`."""

    categorical: dict[str, Any] | None = None
    """The critic classifies returns into `bins` bins between `low` and `high`; None: it regresses them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categorical is None:
            return
        section = dict(self.categorical)
        if set(section) != {"low", "high", "bins"}:
            raise ConfigError(f"critic.categorical must have low, high and bins, got {sorted(section)}")
        if isinstance(section["bins"], bool) or not isinstance(section["bins"], int) or section["bins"] < 2:
            raise ConfigError(f"critic.categorical.bins must be an integer of at least 2, got {section['bins']!r}")
        bin_edges(float(section["low"]), float(section["high"]), section["bins"])
        setattr(self.model.hf_config, VALUE_BINS, section)


critic.FSDPCriticConfig = FSDPCriticConfig
