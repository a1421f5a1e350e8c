"""Time of a step: its parts add up to the whole, and the episode that ended last explains the wait."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.episode.trace.timeline import SUB_AGENT, Span
from verl_agentic.observe.live.time_ledger import (
    EpisodeTime,
    Wait,
    critical_path,
    own_times,
    percentile,
    time_ledger,
    tool_times,
    turn_times,
)

# Began at 100: starts 2 s, thinks 3 s, a step of 4 s whose two calls overlap, 1 s of nothing, its reward.
SPANS = (
    Span("start", "", -1, 0.0, 2.0),
    Span("generate", "", 0, 2.0, 5.0),
    Span("step", "a+b", 0, 5.0, 9.0),
    Span("tool", "a", 0, 5.0, 8.0),
    Span("tool", "b", 0, 6.0, 8.5),
    Span("reward", "", -1, 10.0, 12.0),
)
LAST = EpisodeTime(began_at=100.0, ended_at=112.0, spans=SPANS)
FIRST = EpisodeTime(began_at=98.0, ended_at=105.0, spans=(Span("generate", "", 0, 0.0, 7.0),))
TIMERS = {
    "timing_s/step": 30.0,
    "timing_s/gen": 16.0,
    "timing_s/old_log_prob": 2.0,
    "timing_s/ref": 1.5,
    "timing_s/adv": 0.5,
    "timing_s/update_actor": 5.0,
    "timing_s/update_weights": 1.0,
    "timing_s/save_checkpoint": 2.0,
    "actor/entropy": 99.0,
}
WAIT = Wait(began_at=98.0, ended_at=113.5, episodes=(LAST, FIRST))


def test_the_wait_is_told_by_the_episode_that_ended_last() -> None:
    assert critical_path(WAIT) == pytest.approx(
        # The two calls take 5.0 to 8.5 together; the rest of the step is the environment's own.
        {"dispatch": 2.0, "env_start": 2.0, "generation": 3.0, "tool": 3.5, "env": 0.5, "loop": 1.0, "reward": 2.0}
        | {"poll": 1.5}
    )


def test_a_kind_of_span_that_an_environment_has_made_up_is_the_environments() -> None:
    spans = (Span("step", "", 0, 0.0, 4.0), Span("browser", "", 0, 1.0, 3.0))
    assert own_times(spans, 0.0, 5.0) == pytest.approx({"env": 4.0, "loop": 1.0})


def test_the_ledger_sums_to_the_step() -> None:
    found = time_ledger(TIMERS, waits=[WAIT], handing_out_s=0.25)
    assert sum(found.values()) == pytest.approx(30.0)
    assert found["time/rollout_switch_s"] == pytest.approx(0.5), "gen is 16 s, and the wait in it 15.5"
    assert found["time/dispatch_s"] == pytest.approx(2.25)
    assert found["time/other_s"] == pytest.approx(30 - 28 - 0.25)
    assert {"time/ref_s", "time/weight_sync_s", "time/checkpoint_s"} <= set(found)
    assert not {"time/values_s", "time/rollout_s", "time/validation_s", "time/logging_s"} & set(found)


def test_validation_comes_on_top_because_verl_does_not_count_it_to_the_step() -> None:
    found = time_ledger({**TIMERS, "timing_s/testing": 7.0}, waits=[WAIT])
    assert found["time/validation_s"] == 7.0 and sum(found.values()) == pytest.approx(37.0)


def test_log_and_audit_are_taken_from_the_stage_that_they_ran_in() -> None:
    plain = time_ledger(TIMERS, waits=[WAIT])
    found = time_ledger(TIMERS, waits=[WAIT], log_s={"adv": 0.3, "step": 0.4, "gen": 0.0})
    assert found["time/logging_s"] == pytest.approx(0.7) and sum(found.values()) == pytest.approx(30.0)
    assert found["time/advantage_s"] == pytest.approx(0.2)
    assert found["time/other_s"] == pytest.approx(plain["time/other_s"] - 0.4)


def test_without_timelines_the_wait_is_one_number_and_nothing_is_guessed() -> None:
    for waits in ([], [Wait(began_at=0.0, ended_at=15.0)]):
        found = time_ledger(TIMERS, waits=waits)
        assert found["time/rollout_s"] == 16.0 and sum(found.values()) == pytest.approx(30.0)
        assert "time/generation_s" not in found
    assert time_ledger({"timing_s/gen": 1.0}) == {}


def test_samples_that_were_ready_before_the_step_asked_cost_polling_alone() -> None:
    wait = Wait(began_at=120.0, ended_at=121.0, episodes=(FIRST, LAST))
    assert {k: v for k, v in critical_path(wait).items() if v} == {"poll": 1.0}


def test_an_episode_that_began_in_an_earlier_step_costs_what_is_left_of_it() -> None:
    found = critical_path(Wait(began_at=107.0, ended_at=112.0, episodes=(LAST,)))
    assert {k: v for k, v in found.items() if v} == pytest.approx({"tool": 1.5, "env": 0.5, "loop": 1.0, "reward": 2.0})


def test_clocks_that_differ_never_make_a_time_negative_or_the_sum_wrong() -> None:
    ahead = EpisodeTime(began_at=500.0, ended_at=600.0, spans=SPANS)
    behind = EpisodeTime(began_at=1.0, ended_at=2.0, spans=SPANS)
    for episode in (ahead, behind):
        found = critical_path(Wait(began_at=98.0, ended_at=113.5, episodes=(episode,)))
        assert min(found.values()) >= 0 and sum(found.values()) == pytest.approx(15.5)
        ledger = time_ledger({**TIMERS, "timing_s/gen": 12.0}, waits=[WAIT])  # the timer says less than the clock
        assert min(ledger.values()) >= 0 and sum(ledger.values()) == pytest.approx(30.0)
        assert ledger["time/tool_s"] == pytest.approx(3.5 * 12 / 15.5) and ledger["time/other_s"] == pytest.approx(6.0)


def test_several_waits_of_a_step_add_up() -> None:
    second = Wait(began_at=200.0, ended_at=201.0, episodes=(FIRST,))
    found = time_ledger({**TIMERS, "timing_s/gen": 16.5, "timing_s/switch_wait": 0.0}, waits=[WAIT, second])
    assert found["time/poll_s"] == pytest.approx(2.5) and sum(found.values()) == pytest.approx(30.0)


def test_the_turn_of_a_sub_agent_is_generation_and_the_rest_of_the_call_is_tool() -> None:
    spans = [
        Span("step", "delegate", 0, 0.0, 10.0),
        Span("tool", "delegate", 0, 0.0, 10.0),
        Span("generate", SUB_AGENT, 0, 2.0, 6.0),
        Span("step", SUB_AGENT, 0, 6.0, 7.0),
    ]
    assert own_times(spans, 0.0, 10.0) == pytest.approx({"tool": 5.0, "generation": 4.0, "env": 1.0})


@given(
    st.lists(
        st.tuples(st.sampled_from(["generate", "tool", "step", "close"]), st.floats(0, 50), st.floats(0, 20)),
        max_size=12,
    ),
    st.floats(0, 30),
    st.floats(0, 40),
)
def test_whatever_the_spans_times_sum_to_the_window(
    drawn: list[tuple[str, float, float]], start_s: float, length_s: float
) -> None:
    spans = [Span(kind, "", 0, start, start + length) for kind, start, length in drawn]
    found = own_times(spans, start_s, start_s + length_s)
    assert sum(found.values()) == pytest.approx(length_s, abs=1e-9) and all(value >= 0 for value in found.values())


def test_tools_have_mean_and_p95_over_their_calls_and_only_the_costliest_are_told() -> None:
    calls = [Span("tool", "search", 0, 0.0, float(seconds)) for seconds in range(1, 21)]  # 1 .. 20 s
    episodes = [EpisodeTime(began_at=0.0, ended_at=1.0, spans=(*calls, Span("tool", "cheap", 0, 0.0, 0.5)))]
    found = tool_times(episodes)
    assert found["tool_time/search/mean_s"] == pytest.approx(10.5) and found["tool_time/search/p95_s"] == 19.0
    assert found["tool_time/cheap/p95_s"] == 0.5
    assert set(tool_times(episodes, max_tools=1)) == {"tool_time/search/mean_s", "tool_time/search/p95_s"}
    assert percentile([3.0], 0.95) == 3.0


def test_turns_have_the_means_over_the_episodes_that_had_them() -> None:
    other = EpisodeTime(
        began_at=0.0,
        ended_at=1.0,
        spans=(
            Span("generate", "", 0, 0.0, 1.0),
            Span("generate", SUB_AGENT, 0, 0.0, 50.0),
            Span("generate", "", 7, 1.0, 3.0),
            Span("generate", "", 9, 3.0, 7.0),
        ),
    )
    found = turn_times([LAST, other])
    assert found["turn_time/0/generate_s"] == pytest.approx((3 + 1) / 2)
    assert found["turn_time/0/env_s"] == pytest.approx(4 / 2) and found["turn_time/0/tool_s"] == pytest.approx(3 / 2)
    assert found["turn_time/4+/generate_s"] == pytest.approx((2 + 4) / 2)
    assert not any(name.startswith("turn_time/1/") for name in found)


def test_a_timeline_travels_as_plain_data_and_stays_small() -> None:
    assert EpisodeTime.from_dict(json.loads(json.dumps(LAST.to_dict()))) == LAST
    many = EpisodeTime(began_at=0.0, ended_at=1.0, spans=tuple(Span("tool", "a", i, i, i + 0.5) for i in range(5000)))
    assert len(many.to_dict()["spans"]) == 300
