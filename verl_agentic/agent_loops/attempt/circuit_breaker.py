"""A circuit breaker: stops a run in which most episodes fail for reasons other than the policy."""

from __future__ import annotations

from collections import Counter, deque

from verl_agentic.errors import ConfigError, InfrastructureError


class CircuitBreaker:
    """Tracks the last episodes; open if too many of them were void."""

    def __init__(self, *, max_void_share: float = 0.5, window: int = 256, min_episodes: int = 32) -> None:
        """Makes a closed circuit breaker.

        Args:
            max_void_share: opens above this share of void episodes; 1 never opens.
            window: number of last episodes that count.
            min_episodes: minimum number of episodes before it can open.

        Raises:
            ConfigError: a value is out of range.
        """
        if not 0 < max_void_share <= 1:
            raise ConfigError(f"max_void_share must be above 0 and at most 1, got {max_void_share!r}")
        if not 0 < min_episodes <= window:
            raise ConfigError(f"min_episodes must be 1 to window={window}, got {min_episodes!r}")
        self._max_void_share = max_void_share
        self._min_episodes = min_episodes
        self._errors: deque[str | None] = deque(maxlen=window)

    @property
    def void_share(self) -> float:
        """Share of void episodes in the window; 0 before the first one."""
        return sum(error is not None for error in self._errors) / len(self._errors) if self._errors else 0.0

    def record(self, error: str | None) -> None:
        """Records an episode: None if it counts, else the reason why it is void."""
        self._errors.append(error)

    def check(self) -> None:
        """Raises InfrastructureError with the most frequent reasons if it is open."""
        if len(self._errors) < self._min_episodes or self.void_share <= self._max_void_share:
            return
        reasons = Counter(error for error in self._errors if error is not None).most_common(3)
        listed = "; ".join(f"{count}x {reason}" for reason, count in reasons)
        raise InfrastructureError(
            f"{self.void_share:.0%} of the last {len(self._errors)} episodes are void, got {listed}; fix what fails, "
            f"or raise max_void_share ({self._max_void_share:g})"
        )
