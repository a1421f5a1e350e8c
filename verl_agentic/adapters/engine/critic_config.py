"""Patches verl: `FSDPCriticConfig` has places for a categorical value head and a target network.

`critic.categorical: {low, high, bins}` and `critic.target: {tau}`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.config import critic

from verl_agentic.adapters.patching import replace
from verl_agentic.algorithms.losses.hl_gauss import bin_edges
from verl_agentic.errors import ConfigError
from verl_agentic.settings import check_value

VALUE_BINS = "value_bins"
"""Attribute of the critic's Hugging Face config that holds the section: workers get it, and checkpoints keep it."""
TARGET_TAU = "target_tau"
"""Attribute of the critic's engine config that holds tau: workers get it."""


@dataclasses.dataclass
class FSDPCriticConfig(critic.FSDPCriticConfig):
    """verl's, and two sections."""

    categorical: dict[str, Any] | None = None
    """The critic classifies returns into `bins` bins between `low` and `high`; None: it regresses them."""
    target: dict[str, Any] | None = None
    """A copy of the critic goes the share `tau` of the way to it after every update; None: there is none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categorical is not None:
            setattr(self.model.hf_config, VALUE_BINS, bins_of(dict(self.categorical)))
        if self.target is not None:
            if self.strategy != "fsdp2":
                raise ConfigError(f"critic.target works with critic.strategy=fsdp2, got {self.strategy!r}; set it")
            # Not as an attribute that verl would freeze: a config may be made twice of the same parts.
            object.__setattr__(self.engine, TARGET_TAU, tau_of(dict(self.target)))


def bins_of(section: Any) -> dict[str, Any]:
    """Returns the section `critic.categorical`.

    Raises:
        ConfigError: it cannot work.
    """
    if not isinstance(section, dict) or set(section) != {"low", "high", "bins"}:
        given = sorted(section) if isinstance(section, dict) else section
        raise ConfigError(f"critic.categorical must have low, high and bins, got {given}; set all of them")
    for key in ("low", "high"):
        check_value(section[key], float, name=f"critic.categorical.{key}")
    if isinstance(section["bins"], bool) or not isinstance(section["bins"], int) or section["bins"] < 2:
        raise ConfigError(f"critic.categorical.bins must be an integer of at least 2, got {section['bins']!r}")
    bin_edges(float(section["low"]), float(section["high"]), section["bins"])
    return section


def tau_of(section: Any) -> float:
    """Returns `tau` of the section `critic.target`.

    Raises:
        ConfigError: it cannot work.
    """
    tau = section.get("tau") if isinstance(section, dict) and set(section) == {"tau"} else None
    if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 < tau <= 1:
        raise ConfigError(f"critic.target must have tau alone, above 0 and at most 1, got {section}; ArCHer takes 0.1")
    return float(tau)


replace(critic, "FSDPCriticConfig", FSDPCriticConfig)
