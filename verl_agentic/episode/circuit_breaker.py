"""A circuit breaker: stops a run in which most episodes fail for reasons other than the policy, or all by its agent."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from verl_agentic.base.errors import ConfigError, InfrastructureError
from verl_agentic.base.types import StopReason


class CircuitBreaker:
    """Tracks the last episodes; open if too many of them were void, or the agent program failed in all of them."""

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
        self._agent_errors: deque[str] = deque(maxlen=window)
        """Failures of the agent since the last episode that counts without one."""

    @property
    def void_share(self) -> float:
        """Share of void episodes in the window; 0 before the first one."""
        return sum(error is not None for error in self._errors) / len(self._errors) if self._errors else 0.0

    def record(self, error: str | None, *, agent_error: str = "") -> None:
        """Records an episode.

        Args:
            error: None if it counts, else the reason why it is void.
            agent_error: the failure of the agent program in an episode that counts; empty without one.
        """
        self._errors.append(error)
        if agent_error:
            self._agent_errors.append(agent_error)
        elif error is None:
            self._agent_errors.clear()

    def check(self) -> None:
        """Raises InfrastructureError with the most frequent reasons if it is open."""
        # A weak policy can break an agent, too: only a whole window says that nothing will be learnt.
        if len(self._agent_errors) == self._agent_errors.maxlen and self._max_void_share < 1:
            raise InfrastructureError(
                f"the agent failed in each of the last {len(self._agent_errors)} episodes, got "
                f"{_list_reasons(self._agent_errors)}; all of them score 0, so nothing can be learnt: correct the agent"
            )
        if len(self._errors) < self._min_episodes or self.void_share <= self._max_void_share:
            return
        listed = _list_reasons(error for error in self._errors if error is not None)
        raise InfrastructureError(
            f"{self.void_share:.0%} of the last {len(self._errors)} episodes are void, got {listed}; fix what fails, "
            f"or raise max_void_share ({self._max_void_share:g})"
        )


def agent_error(stop_reason: str, error: str | None) -> str:
    """Returns the failure of the agent program of an episode; empty if it did not fail."""
    return (error or stop_reason) if stop_reason == StopReason.AGENT_FAILED.value else ""


def _list_reasons(reasons: Iterable[str]) -> str:
    return "; ".join(f"{count}x {reason}" for reason, count in Counter(reasons).most_common(3))
