"""The simulated cluster against queueing theory, verl's balancer and published numbers. Every run has a fixed seed."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def speed(**others: float) -> Any:
    from _cluster_queues import EngineSpeed

    values = {"step_s": 0.0, "sequence_s": 0.0, "cached_token_s": 0.0, "prefill_token_s": 0.0, **others}
    return EngineSpeed(**values)  # pyright: ignore[reportArgumentType]


def load(**others: Any) -> Any:
    from _cluster_model import Workload

    values = {"turns": 4, "turns_sigma": 0.8, "max_turns": 40, "prompt_tokens": 20, "turn_tokens": 30}
    values |= {"observation_tokens": 20, "tokens_sigma": 0.5, "tool_s": 0.2, "tool_sigma": 0.5}
    return Workload(**{**values, **others})


def run(plan: dict[str, Any], *, costs: dict[str, Any] | None = None, **workload: Any) -> Any:
    from _cluster_model import Costs, Plan, Run

    engine = speed(step_s=0.01, sequence_s=0.001, prefill_token_s=1e-4)
    values = {"turn_s": 1e-3, "engine": engine, "update_token_s": 1e-3, "sync_s": 0.1, **(costs or {})}
    numbers = {"nodes": 4, "concurrent": 128, "poll_s": 0.1, **plan}
    return Run(Plan(**numbers), Costs(**values), load(**workload)).play()


def arrive(clock: Any, station: Any, amounts: list[Any], *, rate: float, seed: int) -> list[float]:
    """Sends customers at random times; returns how long each stays."""
    draw, at, stays = random.Random(seed), 0.0, []
    for amount in amounts:
        at += draw.expovariate(rate)

        def enter(at: float = at, amount: Any = amount) -> None:
            station.use(amount, lambda: stays.append(clock.now - at))

        clock.at(at, enter)
    clock.run()
    return stays


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("servers", "is_constant", "expected"),
    [
        (1, False, 0.7 / 0.3),  # M/M/1: rho / (1 - rho)
        (1, True, 0.7 / 0.6),  # M/D/1: half of it
        (3, False, 0.5470),  # M/M/3 with a load of 2.1: Erlang's C is 0.4923, over 3 - 2.1
    ],
)
def test_a_station_keeps_customers_waiting_as_theory_says(servers: int, is_constant: bool, expected: float) -> None:
    from _cluster_queues import Clock, Station

    clock, draw = Clock(), random.Random(1)
    station = Station(clock, servers)
    amounts = [1.0 if is_constant else draw.expovariate(1.0) for _ in range(60_000)]
    stays = arrive(clock, station, amounts, rate=0.7 * servers, seed=2)
    assert mean(stays) - mean(amounts) == pytest.approx(expected, rel=0.08)
    assert station.waited_s / station.served == pytest.approx(mean(stays) - mean(amounts))
    assert station.busy_s / (servers * clock.now) == pytest.approx(0.7, rel=0.03)


@pytest.mark.parametrize("is_constant", [True, False])
def test_an_engine_shares_its_speed_so_that_only_the_mean_length_counts(is_constant: bool) -> None:
    from _cluster_queues import Clock, Engine, Request

    # M/G/1 with processor sharing: the mean stay is the mean service over 1 - load, whatever the distribution.
    clock, draw = Clock(), random.Random(3)
    engine = Engine(clock, dataclasses.replace(speed(sequence_s=0.001), max_sequences=10_000))
    lengths = [100 if is_constant else 1 + int(draw.expovariate(1 / 99.5)) for _ in range(40_000)]
    amounts = [Request(number, 0, length) for number, length in enumerate(lengths)]
    stays = arrive(clock, engine, amounts, rate=6.0, seed=4)
    service = mean(lengths) * 0.001
    share = 6.0 * service
    assert mean(stays) == pytest.approx(service / (1 - share), rel=0.05)
    assert engine.busy_s / clock.now == pytest.approx(share, rel=0.03)
    assert engine.generated == sum(lengths)


def test_an_engine_computes_only_what_is_new_in_a_kept_conversation() -> None:
    from _cluster_queues import Clock, Engine, Request

    def play(cache_tokens: float) -> Any:
        clock = Clock()
        engine = Engine(clock, dataclasses.replace(speed(step_s=1.0, prefill_token_s=0.1), cache_tokens=cache_tokens))
        for request in (Request(1, 100, 10), Request(2, 100, 10), Request(1, 130, 10)):
            engine.use(request, lambda: None)
            clock.run()
        return engine, clock.now

    engine, seconds = play(1_000)
    assert (engine.prefilled, engine.reused) == (220, 110)
    assert seconds == pytest.approx(220 * 0.1 + 30)
    engine, _ = play(200)  # the second conversation evicts the first
    assert (engine.prefilled, engine.reused) == (330, 0)


def test_after_a_pause_the_contexts_of_running_requests_are_computed_again() -> None:
    from _cluster_queues import Clock, Engine, Request

    clock, ends = Clock(), []
    engine = Engine(clock, speed(step_s=1.0, prefill_token_s=0.1))
    engine.use(Request(1, 100, 10), lambda: ends.append(clock.now))
    clock.at(15.0, engine.pause)
    clock.at(25.0, engine.resume)
    clock.run()
    assert ends == [pytest.approx(10 + 10 + 10 + 11)]  # prompt, tokens, pause, 110 tokens again
    assert engine.busy_s == pytest.approx(31)


def test_gpus_that_wait_for_the_longest_episode_are_idle_for_one_minus_mean_over_maximum() -> None:
    plan = {"nodes": 16, "concurrent": 16, "group_size": 1, "workers": 16, "poll_s": 0.01, "steps": 1}
    free = {"turn_s": 0.0, "engine": speed(step_s=0.1), "update_token_s": 0.0, "sync_s": 0.0}
    played = run(plan, costs=free, turns=1, turns_sigma=0.0, tokens_sigma=1.0, tool_s=0.0)
    lengths = [float(played.draw(number).turn_tokens[0]) for number in range(16)]
    assert max(lengths) > 2 * mean(lengths)
    assert played.idle_share(skip=0) == pytest.approx(1 - mean(lengths) / max(lengths), abs=0.01)


@pytest.mark.parametrize("mode", ["sync", "partial", "one_step_off", "async"])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_no_episode_is_lost_or_doubled_when_a_node_dies(mode: str, is_noticed: bool) -> None:
    plan = {"mode": mode, "lost_node_at_s": 3.0, "is_loss_noticed": is_noticed, "steps": 2, "nodes": 6}
    played = run(plan)
    total, submitted = played.totals, len(played.started)
    assert total.replayed > 0
    assert total.void == 0 if is_noticed else total.void > 0
    assert submitted == len(set(played.started))
    assert submitted == len(played.ends_s) + played.live
    assert total.trained == 2 * played.plan.batch_groups * played.plan.group_size


def test_more_groups_than_needed_shorten_a_step_and_drop_their_share() -> None:
    shares = (0.0, 0.25, 0.5, 1.0)
    plays = [run({"nodes": 32, "concurrent": int(128 * (1 + share)), "oversample": share}) for share in shares]
    assert [play.plan.batch_groups for play in plays] == [16] * 4
    steps_s = [play.steady().time_s for play in plays]
    assert steps_s == sorted(steps_s, reverse=True) and steps_s[-1] < 0.8 * steps_s[0]
    dropped = [total.dropped / (total.dropped + total.trained) for total in (play.steady() for play in plays)]
    assert dropped == [pytest.approx(share / (1 + share)) for share in shares]


def test_a_longer_tail_idles_gpus_of_the_synchronous_trainer_only() -> None:
    def idle(mode: str, sigma: float) -> float:
        return run({"nodes": 16, "mode": mode, "steps": 4}, turns_sigma=sigma, turns=8, max_turns=200).idle_share()

    assert idle("sync", 1.2) > idle("sync", 0.1) + 0.1
    assert idle("partial", 1.2) < idle("sync", 1.2) - 0.1


def test_too_few_event_loops_are_the_queue() -> None:
    played = run({"workers": 1, "nodes": 16}, costs={"turn_s": 0.05})
    busy = played.utilisation()
    assert max(busy, key=busy.__getitem__) == "event loops" and busy["event loops"] > 0.7
    assert run({"workers": 16, "nodes": 16}, costs={"turn_s": 0.05}).steady().time_s < played.steady().time_s


def test_equal_seeds_give_equal_runs() -> None:
    first, again, other = (run({"mode": "async", "seed": seed}) for seed in (5, 5, 6))
    assert first.marks == again.marks != other.marks


def test_sessions_are_remembered_as_verls_balancer_does() -> None:
    from _cluster_queues import Router
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    theirs: Any = GlobalRequestLoadBalancer({str(place): None for place in range(3)}, max_cache_size=4)
    ours, draw, hits = Router(3, sessions=4, seed=0), random.Random(0), 0
    for count in range(2_000):
        session = draw.randrange(8)
        hits += str(session) in theirs._request_id_to_server
        server, _ = theirs.acquire_server(str(session))
        place = ours.acquire(session)
        assert (ours.hits, ours.misses) == (hits, count + 1 - hits)
        theirs.release_server(server)
        ours.release(place)
    assert 0 < hits < 2_000


def test_a_dead_replica_takes_all_new_sessions_of_verls_balancer() -> None:
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    balancer: Any = GlobalRequestLoadBalancer({"dead": None, "a": None, "b": None})
    for number in range(6):
        balancer.acquire_server(f"running{number}")
    while balancer.get_inflight_count("dead"):
        balancer.release_server("dead")  # its requests have failed
    taken = []
    for number in range(50):
        taken.append(balancer.acquire_server(f"new{number}")[0])
        if taken[-1] == "dead":
            balancer.release_server("dead")
    assert set(taken) == {"dead"}


def test_the_simulated_gpu_serves_published_loads_within_15_percent() -> None:
    from _cluster_answers import load_constants, published_check

    assert all(0.85 < ratio < 1.15 for ratio in published_check(load_constants()).values())


def test_a_constant_without_a_source_is_refused(tmp_path: Path) -> None:
    from _cluster_answers import load_constants

    (tmp_path / "constants.yaml").write_text("turns: {value: 1, unit: mean}\n")
    with pytest.raises(ValueError, match="turns"):
        load_constants(tmp_path / "constants.yaml")


def test_a_cluster_without_engines_is_refused() -> None:
    from _cluster_model import Plan

    with pytest.raises(ValueError, match="nodes"):
        Plan(nodes=1, concurrent=8, mode="async", train_share=1.0)


def test_the_speed_of_a_server_is_found_from_exact_times() -> None:
    import numpy as np
    from _cluster_real import _fit

    rows = np.random.default_rng(0).uniform(1, 100, (12, 3))
    times = rows @ [0.5, 0.0, 2.0]
    assert _fit(rows / times[:, None]) == pytest.approx([0.5, 0.0, 2.0], abs=1e-9)
