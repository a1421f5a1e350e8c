"""Signs of a training collapse (the "echo trap"): siblings become alike while the reward does not rise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from verl_agentic.base.settings import Settings, setting


class CollapseWatch(Settings):
    """Thresholds of the signs. All numbers are ours: RAGEN describes the signs without thresholds.

    Paper: https://arxiv.org/abs/2504.20073
    """

    window: int = setting(10, min=1)
    """Steps at either end of the history whose medians are compared."""
    fallen_to: float = setting(0.5, above=0, below=1)
    """A level has fallen to at most this share."""
    risen_to: float = setting(2.0, above=1)
    """A level has risen to at least this multiple."""
    gain: float = setting(0.25, min=0)
    """Minimum rise of the reward, in standard deviations of the beginning."""

    def signs(
        self,
        *,
        reward_std: Sequence[float],
        reward: Sequence[float],
        entropy: Sequence[float] = (),
        grad_norm: Sequence[float] = (),
    ) -> dict[str, float]:
        """Returns each sign as 0 or 1, for series of one number per step; all 0 while they are short.

        `alarm` is 1 if the standard deviation within groups has fallen and the reward has not risen, or if
        `entropy_fell` and `grad_norm_rose` are both 1. Series shorter than two windows are ignored.

        Args:
            reward_std: mean standard deviation of rewards within groups.
            reward: mean reward.
            entropy: of the policy; empty: unknown.
            grad_norm: norm of the gradient; empty: unknown.
        """
        std_fell, entropy_fell = self._has_fallen(reward_std), self._has_fallen(entropy)
        grad_norm_rose = self._has_risen(grad_norm)
        is_flat = False
        if self._is_long(reward) and self._is_long(reward_std):
            (before, after), (deviation, _) = self._compute_ends(reward), self._compute_ends(reward_std)
            is_flat = after - before <= self.gain * deviation
        alarm = is_flat and (std_fell or (entropy_fell and grad_norm_rose))
        flags = {"reward_std_fell": std_fell, "reward_flat": is_flat, "entropy_fell": entropy_fell}
        return {name: float(sign) for name, sign in {**flags, "grad_norm_rose": grad_norm_rose, "alarm": alarm}.items()}

    def _is_long(self, series: Sequence[float]) -> bool:
        return len(series) >= 2 * self.window

    def _compute_ends(self, series: Sequence[float]) -> tuple[float, float]:
        return statistics.median(series[: self.window]), statistics.median(series[-self.window :])

    def _has_fallen(self, series: Sequence[float]) -> bool:
        if not self._is_long(series):
            return False
        before, after = self._compute_ends(series)
        return after <= self.fallen_to * before and after < before

    def _has_risen(self, series: Sequence[float]) -> bool:
        if not self._is_long(series):
            return False
        before, after = self._compute_ends(series)
        return after >= self.risen_to * before and after > before
