"""Stuck episodes are named once, and again when their age has doubled."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.episode.trace.timeline import Timeline
from verl_agentic.observe.live.stuck_episodes import (
    BackoffWarner,
    StuckWatch,
    WaitingOptions,
    describe,
    is_fresh,
    state,
    states,
)


def timeline(uid: str, **options: Any) -> Timeline:
    return Timeline(uid=uid, began=0.0, agent="env_agent", env="python_math", **options)


def hanging(episode: Timeline, kind: str, *, since: float, label: str = "", turn: int = -1) -> Any:
    span = episode.begin(kind, label=label, turn=turn, parent=None)
    span.start = since
    return span


def test_a_stuck_episode_is_named_with_its_environment_tool_and_age_and_again_when_the_age_doubles() -> None:
    episode, quick, watch = timeline("ab12", session=3), timeline("quick"), StuckWatch(WaitingOptions())
    hanging(episode, "tool", label="python", turn=2, since=10.0)
    hanging(quick, "step", turn=0, since=110.0)
    said = {now: watch.warnings([episode, quick], now=now) for now in (100.0, 129.0, 131.0, 200.0, 229.0)}
    assert said[100.0] == said[129.0] == said[200.0] == said[229.0] == []
    assert said[131.0] == [
        "episode ab12/3 (environment 'python_math', turn 2) has waited 121 s for tool 'python'; it began 131 s ago"
    ]
    first, second = watch.warnings([episode, quick], now=255.0)
    assert "245 s" in first and "ab12" in first and "quick" in second
    assert watch.warnings([episode], now=480.0) == [] and len(watch.warnings([episode], now=491.0)) == 1


def test_another_wait_is_young_again() -> None:
    episode, watch = timeline("a"), StuckWatch(WaitingOptions(stuck_after_s=100.0))
    span = hanging(episode, "step", since=0.0, turn=0)
    assert len(watch.warnings([episode], now=101.0)) == 1
    episode.end(span)
    del span  # its id is free for the next one
    hanging(episode, "step", since=101.0, turn=0)
    assert watch.warnings([episode], now=150.0) == [] and len(watch.warnings([episode], now=202.0)) == 1


def test_of_many_that_are_stuck_at_once_three_are_named_and_the_others_counted() -> None:
    episodes, watch = [timeline(str(number)) for number in range(520)], StuckWatch(WaitingOptions())
    for number, episode in enumerate(episodes):
        if number < 512:
            hanging(episode, "generate", since=float(number % 9), turn=0)
        else:
            hanging(episode, *(("tool",) if number < 515 else ("step",)), label=f"t{number // 515}", since=50.0)
    assert watch.warnings(episodes[:512], now=599.0) == [], "turns wait for each other"
    lines = watch.warnings(episodes, now=700.0)
    assert [line.split()[1] for line in lines[:3]] == ["0/0", "9/0", "18/0"] and "has waited 700 s" in lines[0]
    assert lines[3:] == [
        "and 509 more wait for a turn of the policy",
        "and 5 more wait for a step of its environment",
        "and 3 more wait for tool 't0'",
    ]
    assert watch.warnings(episodes, now=701.0) == []


def test_the_limit_of_turns_of_the_policy_is_their_own() -> None:
    episode, watch = timeline("a"), StuckWatch(WaitingOptions(stuck_after_s=100.0, stuck_generate_s=30.0))
    hanging(episode, "generate", since=0.0, turn=0)
    assert [len(watch.warnings([episode], now=now)) for now in (29.0, 31.0, 50.0, 61.0)] == [0, 1, 0, 1]


def test_what_waits_in_no_span_waits_for_the_loop_or_its_own_code() -> None:
    episode = timeline("a")
    episode.add("generate", label="", turn=0, start=0.0, end=5.0)
    found = state(episode, now=30.0, now_at=1000.0)
    assert (found["activity"], found["age_s"], found["since"], found["turn"]) == ("", 25.0, 975.0, -1)
    assert "has waited 25 s for the event loop, or code of its agent loop" in describe(found)


@pytest.mark.parametrize(
    ("kind", "label", "what"),
    [
        ("start", "", "the start of its environment"),
        ("generate", "", "a turn of the policy"),
        ("step", "a+b", "a step of its environment (tool 'a+b')"),
        ("reward", "", "a reward worker"),
    ],
)
def test_every_wait_has_words(kind: str, label: str, what: str) -> None:
    episode = timeline("a")
    hanging(episode, kind, label=label, since=0.0)
    assert f"for {what};" in describe(state(episode, now=9.0, now_at=0.0))


def test_the_report_has_the_oldest_first_and_at_most_fifty() -> None:
    episodes = [timeline(str(number)) for number in range(60)]
    for number, episode in enumerate(episodes):
        hanging(episode, "tool", label="t", since=float(number))
    found = states(episodes, now=100.0, now_at=1000.0)
    assert [one["uid"] for one in found] == [str(number) for number in range(50)]
    assert found[0]["age_s"] == 100.0 and found[0]["tool"] == "t" and found[0]["since"] == 900.0


def test_ages_that_skip_a_doubling_are_told_once() -> None:
    ages = BackoffWarner(10.0)
    assert [ages.is_due("a", age) for age in (9.0, 10.0, 19.0, 95.0, 100.0, 160.0)] == [
        *(False, True, False),
        *(True, False, True),
    ]
    ages.keep([])
    assert ages.is_due("a", 11.0), "forgotten"


@pytest.mark.parametrize(("every_s", "holds_s"), [(None, 60.0), (1.0, 60.0), (100.0, 300.0)])
def test_a_report_holds_for_a_minute_or_three_of_its_intervals(every_s: float | None, holds_s: float) -> None:
    report = {"time": 1000.0} | ({} if every_s is None else {"report_every_s": every_s})
    assert is_fresh(report, now_at=1000.0 + holds_s) and not is_fresh(report, now_at=1001.0 + holds_s)
    assert not is_fresh({}, now_at=1000.0)
