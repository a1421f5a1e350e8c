"""A learning rate that falls when responses grow (our own formula)."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting


class LengthLrSettings(Settings):
    """A learning rate that falls when responses grow: the section `agentic.length_lr`."""

    reference_tokens: float = setting(above=0)
    """Sampled tokens of a response for which the learning rate was chosen."""


def length_lr_factor(mean_length: float, *, reference_length: float) -> float:
    """Returns the factor of the learning rate: `min(1, reference_length / mean_length)`.

    It is 1 for a batch without a sampled token.

    Args:
        mean_length: sampled tokens per response, on average over the batch.
        reference_length: sampled tokens for which the learning rate was chosen.

    Raises:
        ConfigError: the reference length is not positive.
    """
    if reference_length <= 0:
        raise ConfigError(f"reference_length must be positive, got {reference_length}; give a number of tokens")
    return min(1.0, reference_length / mean_length) if mean_length > 0 else 1.0
