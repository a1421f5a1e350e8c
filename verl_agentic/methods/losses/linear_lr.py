"""A learning rate that falls linearly over the run, which verl's FSDP engines do not have."""

from __future__ import annotations

from verl_agentic.base.settings import Settings, setting


class LinearLrSettings(Settings):
    """A learning rate that falls linearly over the run: the section `agentic.linear_lr`."""

    min_ratio: float = setting(0.0, min=0, max=1)
    """Share of the learning rate that would be reached after the last step."""


def linear_lr_factor(step: int, *, num_steps: int, min_ratio: float = 0.0) -> float:
    """Returns the factor of the learning rate: 1 in the first step, falling in a line to `min_ratio` after the last.

    Args:
        step: training step, from 1.
        num_steps: of the run; later steps have `min_ratio`.
        min_ratio: share of the learning rate at the end.
    """
    progress = min(1.0, (step - 1) / max(1, num_steps))
    return 1.0 - (1.0 - min_ratio) * progress
