"""Patches verl: `FSDPCriticConfig` gets sections for a categorical value head and a target network.

`critic.categorical: {low, high, bins}` and `critic.target: {tau}`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.config import critic

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.extensions.methods.method_sections import read_bins, read_tau
from verl_agentic.verl.patching import replace

VALUE_BINS = "value_bins"
"""Attribute of the critic's Hugging Face config with the section; workers and checkpoints get it."""
TARGET_TAU = "target_tau"
"""Attribute of the critic's engine config with tau."""


@dataclasses.dataclass
class FSDPCriticConfig(critic.FSDPCriticConfig):
    """verl's config with two more sections."""

    categorical: dict[str, Any] | None = None
    """The critic classifies returns into `bins` bins between `low` and `high`. None: regression."""
    target: dict[str, Any] | None = None
    """A target network moves by the share `tau` towards the critic after every update. None: no target network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categorical is not None:
            setattr(self.model.hf_config, VALUE_BINS, read_bins(dict(self.categorical)))
        if self.target is not None:
            if self.strategy != "fsdp2":
                raise ConfigError(f"critic.target works with critic.strategy=fsdp2, got {self.strategy!r}; set it")
            # Not an attribute that verl freezes, because a config may be built twice from the same parts.
            object.__setattr__(self.engine, TARGET_TAU, read_tau(dict(self.target)))


replace(critic, "FSDPCriticConfig", FSDPCriticConfig)
