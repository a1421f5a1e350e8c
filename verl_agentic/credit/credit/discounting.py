"""The effect of discounting on a reward at the end of an episode."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError


def sparse_value(success: float, *, gamma: float, steps_left: int) -> float:
    """Returns the value of a state when the only reward is a 1 at the end, `gamma**steps_left * P(success)`.

    Args:
        success: probability that the episode succeeds.
        gamma: discount of a step.
        steps_left: T - t, steps until the reward: turns, or tokens where verl discounts tokens.
    """
    return gamma**steps_left * success


def discount_complaint(*, gamma: float, steps: int, min_share: float = 0.1) -> str | None:
    """Returns a message if discounting leaves almost nothing of an outcome at the first step, else None.

    Args:
        steps: length of an episode, in the steps that are discounted.
        min_share: minimum share of the outcome at the first step. Our choice.

    Raises:
        ConfigError: gamma not in [0, 1], or no steps.
    """
    if not 0 <= gamma <= 1 or steps < 1:
        raise ConfigError(f"discounting needs gamma in [0, 1] and steps >= 1, got {gamma} and {steps}")
    arriving = sparse_value(1.0, gamma=gamma, steps_left=steps)
    if arriving >= min_share:
        return None
    return (
        f"gamma {gamma} leaves {arriving:.3g} of an outcome after {steps} steps, got less than {min_share}; the first "
        f"steps learn next to nothing: set gamma to at least {min_share ** (1 / steps):.4f}, or to 1, or discount turns"
    )
