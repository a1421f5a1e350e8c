"""The circuit breaker: closed while failures are few, and an error with their reasons when they are not."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError, InfrastructureError
from verl_agentic.episode.circuit_breaker import CircuitBreaker


def fed(errors: str, **options: float) -> CircuitBreaker:
    """Returns a breaker that has seen an episode per letter: `.` counts, everything else is why it is void."""
    breaker = CircuitBreaker(**options)  # type: ignore[arg-type]
    for error in errors:
        breaker.record(None if error == "." else error)
    return breaker


def test_it_is_closed_at_the_threshold_and_open_above_it() -> None:
    fed("aa..", max_void_share=0.5, window=4, min_episodes=4).check()
    with pytest.raises(InfrastructureError, match="75%"):
        fed("aaa.", max_void_share=0.5, window=4, min_episodes=4).check()


def test_the_error_names_the_most_frequent_reasons_and_the_way_out() -> None:
    breaker = fed("bbbaaccccd.", max_void_share=0.25, window=16, min_episodes=1)
    with pytest.raises(InfrastructureError) as caught:
        breaker.check()
    assert str(caught.value) == (
        "91% of the last 11 episodes are void, got 4x c; 3x b; 2x a; fix what fails, or raise max_void_share (0.25)"
    )


def test_a_few_episodes_say_nothing_yet() -> None:
    breaker = fed("a" * 31)
    breaker.check()
    breaker.record("a")
    with pytest.raises(InfrastructureError):
        breaker.check()


def test_it_looks_at_the_last_episodes_only_so_that_it_closes_again() -> None:
    breaker = fed("aaaa", max_void_share=0.5, window=4, min_episodes=2)
    with pytest.raises(InfrastructureError):
        breaker.check()
    for _ in range(2):
        breaker.record(None)
    breaker.check()
    assert breaker.void_share == 0.5


def test_a_share_of_1_never_opens_it() -> None:
    breaker = fed("a" * 500, max_void_share=1.0)
    breaker.check()
    assert breaker.void_share == 1.0


def test_before_the_first_episode_nothing_is_void() -> None:
    breaker = CircuitBreaker()
    breaker.check()
    assert breaker.void_share == 0.0


@pytest.mark.parametrize(
    "bad", [{"max_void_share": 0.0}, {"max_void_share": 1.5}, {"min_episodes": 0}, {"window": 8, "min_episodes": 9}]
)
def test_values_that_cannot_work_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        CircuitBreaker(**bad)  # type: ignore[arg-type]


def test_it_opens_when_the_agent_has_failed_in_every_episode_and_not_before() -> None:
    def seen(episodes: str, **options: float) -> CircuitBreaker:
        breaker = CircuitBreaker(window=4, min_episodes=4, **options)  # type: ignore[arg-type]
        for episode in episodes:
            breaker.record("gone" if episode == "v" else None, agent_error="KeyError: 'cost'" if episode == "a" else "")
        return breaker

    for episodes in ("aaa", "aaa.aaa", "aa.a.aaa"):
        seen(episodes).check()
    for episodes in ("aaaa", "..aaaa", "aavaa", "a" * 20):
        with pytest.raises(InfrastructureError, match="'cost'"):
            seen(episodes).check()
    seen("aaaa", max_void_share=1.0).check()
