"""An evaluation plays what is missing, keeps what it has, and its summary is that of a hand calculation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import END, FakeEnv, encode, episode_setup

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvError, InfrastructureError
from verl_agentic.base.types import Message
from verl_agentic.episode.circuit_breaker import CircuitBreaker
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.evaluate.evaluation_log import EpisodeRows, EvaluationLog, read_episodes
from verl_agentic.evaluate.evaluation_page import figure_rows
from verl_agentic.evaluate.evaluation_run import (
    EvaluationAttempt,
    PolicyBackend,
    RunAttempt,
    attempt_runner,
    attempts,
    evaluate,
    summarise,
)
from verl_agentic.graders.models.client import Price
from verl_agentic.graders.stored_samples import read_samples
from verl_agentic.log.reader import RunLog, write_run

ROWS = [EnvRow(prompt=(Message("user", f"q{i}"),), ground_truth="42", extra={"task_id": f"t{i}"}) for i in range(3)]


def backend(text: str) -> PolicyBackend:
    policy = ScriptedPolicy(lambda messages: text, encode=encode, end_ids=[END])
    return PolicyBackend(setup=episode_setup(policy), usage={"requests": 1, "completion_tokens": 5})


def says_42_where(is_right: Callable[[EvaluationAttempt], bool]) -> Callable[[EvaluationAttempt], PolicyBackend]:
    return lambda attempt: backend("42" if is_right(attempt) else "41")


async def run(
    tmp_path: Path, backend_for: Callable[[EvaluationAttempt], PolicyBackend], **options: Any
) -> list[EpisodeRows]:
    rows, samples = options.pop("rows", ROWS), options.pop("samples", 2)
    run_attempt = attempt_runner(options.pop("make_env", FakeEnv), backend_for)
    log = EvaluationLog(tmp_path, {"env": "fake", "temperature": 0.5})
    try:
        return await evaluate(
            attempts(rows, samples),
            **{
                "run_attempt": options.pop("elsewhere", lambda run: run)(run_attempt),
                "log": log,
                "max_concurrent": 4,
                "breaker": CircuitBreaker(max_void_share=1.0),
                **options,
            },
        )
    finally:
        log.close()


def last(episodes: list[EpisodeRows]) -> list[Any]:
    return [rows[-1] for rows in episodes]


async def test_every_row_is_played_as_often_as_asked_and_recorded(tmp_path: Path) -> None:
    records = await run(tmp_path, says_42_where(lambda a: a.index == 0 or (a.index == 1 and a.sample == 1)))
    outcomes = [(r["task_id"], r["session"], r["acc"]) for r in last(records)]
    assert outcomes == [
        *(("t0", 0, 1.0), ("t1", 0, 0.0), ("t2", 0, 0.0)),
        *(("t0", 1, 1.0), ("t1", 1, 1.0), ("t2", 1, 0.0)),
    ]
    logged = read_episodes(tmp_path)
    assert len(logged) == 6 and logged.keys() == {(r["uid"], r["session"]) for r in last(records)}
    (row,) = logged[records[0][0]["uid"], 0]
    assert [message["content"] for message in row["prompt"]] == ["q0"] and [t["text"] for t in row["turns"]] == ["42$"]
    assert row["response_ids"] == encode("42$") and row["response_mask"] == [1, 1, 1]
    assert row["prompt_ids"] == encode("<user>q0<assistant>") and row["rollout_log_probs"] == [0.0] * 3
    assert (row["stop_reason"], row["is_void"], row["id_source"]) == ("answered", False, "exact")
    assert (row["env"], row["temperature"], row["place"], row["loop"]) == ("fake", 0.5, "last", "evaluate")
    assert row["numbers"]["usage/completion_tokens"] == 5.0 and row["numbers"]["num_turns"] == 1.0
    assert row["score"]["score"] == row["reward"] == sum(row["token_rewards"])
    stored = read_samples(tmp_path)
    assert len(stored) == 6 and {one.split for one in stored} == {"val"} and stored[0].sample.ground_truth == "42"


async def test_what_the_journal_has_is_not_played_again_and_more_samples_are(tmp_path: Path) -> None:
    first = await run(tmp_path, says_42_where(lambda a: True), samples=1)
    played: list[tuple[int, int]] = []

    def backend_for(attempt: EvaluationAttempt) -> PolicyBackend:
        played.append((attempt.index, attempt.sample))
        return backend("41")

    seen: list[EpisodeRows] = []
    second = await run(tmp_path, backend_for, rows=ROWS[::-1], on_episode=seen.append)
    assert sorted(played) == [(0, 1), (1, 1), (2, 1)], "only the second samples"
    assert [rows[-1]["time"] for rows in second[:3]] == [rows[-1]["time"] for rows in first[::-1]]
    assert [row["acc"] for row in last(second)] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert len(seen) == 6, "what was there is told of, too"


async def test_void_episodes_are_played_again(tmp_path: Path) -> None:
    class Failing(FakeEnv):
        async def start(self) -> tuple[Message, ...]:
            raise OSError("no disk")

    (void,) = last(await run(tmp_path, says_42_where(lambda a: True), make_env=Failing, samples=1, rows=ROWS[:1]))
    assert void["is_void"] and "no disk" in void["error"] and (void["reward"], void["acc"]) == (None, None)
    (valid,) = last(await run(tmp_path, says_42_where(lambda a: True), samples=1, rows=ROWS[:1]))
    assert (valid["is_void"], valid["acc"]) == (False, 1.0)
    (logged,) = read_episodes(tmp_path).values()
    assert [row["is_void"] for row in logged] == [False], "the last episode of an attempt counts"
    assert RunLog(tmp_path).table("trajectories", ["acc"]).to_pylist() == [{"acc": 1.0}]


async def test_a_folder_with_the_log_of_a_run_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, trajectories=[{"uid": "g"}])
    with pytest.raises(ConfigError, match="holds the log of a run"):
        EvaluationLog(tmp_path, {})
    assert not (tmp_path / "evaluation.json").exists(), "it would make the run an evaluation"


async def test_rows_with_the_same_content_are_different_tasks(tmp_path: Path) -> None:
    records = await run(tmp_path, says_42_where(lambda a: a.index == 0), rows=[ROWS[0], ROWS[0]], samples=1)
    assert [row["acc"] for row in last(records)] == [1.0, 0.0]
    assert summarise(last(records))["tasks"] == 2


async def test_the_cost_counts_all_requests_by_their_prices(tmp_path: Path) -> None:
    records = last(await run(tmp_path, says_42_where(lambda a: a.index == 0), samples=1))
    usage = {"usage/requests": 2.0, "usage/prompt_tokens": 1e6, "usage/completion_tokens": 5e5}
    records = [{**record, "numbers": {**record["numbers"], **usage}} for record in records]
    assert "cost" not in summarise(records)
    cost = summarise(records, price=Price(input=2.0, output=4.0))["cost"]
    assert cost == {"total": 12.0, "per_episode": 4.0, "per_solved": 12.0}
    lost = [{**record, "acc": 0.0} for record in records]
    assert summarise(lost, price=Price(input=2.0))["cost"]["per_solved"] is None


async def test_no_more_than_allowed_are_under_way_at_once(tmp_path: Path) -> None:
    running, most = 0, 0

    class Counting(FakeEnv):
        async def start(self) -> tuple[Message, ...]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            return await super().start()

        async def close(self) -> None:
            nonlocal running
            running -= 1

    await run(tmp_path, says_42_where(lambda a: True), make_env=Counting, samples=4, max_concurrent=3)
    assert (most, running) == (3, 0)


async def test_too_many_void_episodes_stop_the_evaluation_with_their_reason_and_keep_what_was_played(
    tmp_path: Path,
) -> None:
    class Failing(FakeEnv):
        async def start(self) -> tuple[Message, ...]:
            raise OSError("no disk")

    breaker = CircuitBreaker(max_void_share=0.5, window=4, min_episodes=4)
    with pytest.raises(InfrastructureError, match=r"100% of the last 4 episodes are void, got 4x .*no disk"):
        await run(
            tmp_path, says_42_where(lambda a: True), make_env=Failing, breaker=breaker, samples=9, max_concurrent=1
        )
    assert len(read_episodes(tmp_path)) == 4


async def test_what_no_retry_can_help_ends_the_siblings_too(tmp_path: Path) -> None:
    envs: list[FakeEnv] = []

    def make(row: EnvRow) -> FakeEnv:
        envs.append(FakeEnv(row))
        if len(envs) == 2:
            raise ConfigError("no such thing, got x; name one")
        return envs[-1]

    def forever(attempt: EvaluationAttempt) -> PolicyBackend:
        async def text(messages: Any) -> str:
            await asyncio.sleep(3600)
            return ""

        policy = ScriptedPolicy(text, encode=encode, end_ids=[END])
        return PolicyBackend(setup=episode_setup(policy), usage={})

    with pytest.raises(ConfigError, match="no such thing"):
        await asyncio.wait_for(run(tmp_path, forever, make_env=make), 5)
    assert envs[0].closed == 1


async def test_the_summary_is_that_of_a_hand_calculation(tmp_path: Path) -> None:
    # Successes of 4 samples: t0 4, t1 2, t2 0.
    records = last(await run(tmp_path, says_42_where(lambda a: a.sample < (4, 2, 0)[a.index]), samples=4))
    summary = summarise(records)
    assert (summary["tasks"], summary["episodes"], summary["void"]) == (3, 12, 0)
    # Mean 1/2; the tasks' deviations sum to 2, 0, -2: sqrt(3/2 * 8) / 12.
    assert summary["success"]["mean"] == 0.5
    assert summary["success"]["stderr"] == pytest.approx((3 / 2 * 8) ** 0.5 / 12)
    # stderr is 0.289: as certain as 3 tasks with one attempt each, of which 1.5 succeeded.
    assert summary["success"]["ci95"] == summary["outcome"]["ci95"] == pytest.approx([0.125, 0.875], abs=0.001)
    # pass@2: 1, 1 - C(2,2)/C(4,2) = 5/6, 0. pass^2: 1, C(2,2)/C(4,2) = 1/6, 0.
    assert summary["pass_at_k"] == {"1": 0.5, "2": pytest.approx((1 + 5 / 6) / 3), "4": pytest.approx(2 / 3)}
    assert summary["pass_hat_k"] == {"1": 0.5, "2": pytest.approx((1 + 1 / 6) / 3), "4": pytest.approx(1 / 3)}
    assert summary["tasks_at_k"] == {"1": 3, "2": 3, "4": 3}
    assert summary["stop_reasons"] == {"answered": 12} and summary["usage"] == {"requests": 12, "completion_tokens": 60}
    assert summary["model_tokens"] == {"mean": 3.0, "stderr": 0.0} and summary["token_ids"] == ["exact"]
    json.dumps(summary)


async def test_counts_of_0_and_1_are_no_shares(tmp_path: Path) -> None:
    summary = summarise(last(await run(tmp_path, says_42_where(lambda a: False), samples=4)))
    assert summary["num_turns"] == {"mean": 1.0, "stderr": 0.0} and summary["tool_calls"] == {
        "mean": 0.0,
        "stderr": 0.0,
    }


async def test_no_success_at_all_is_not_certain(tmp_path: Path) -> None:
    records = last(await run(tmp_path, says_42_where(lambda a: False), samples=4))
    success = summarise(records)["success"]
    assert (success["mean"], success["stderr"]) == (0.0, 0.0)
    assert success["ci95"] == pytest.approx([0.0, 0.5615], abs=1e-3)  # of 3 tasks, not of 12 attempts


def record(task: str, outcome: float, *, void: bool = False, error: str = "") -> dict[str, Any]:
    names = ("num_turns", "model_tokens", "response_tokens", "tool_calls", "tool_errors")
    return {
        "uid": task, "acc": outcome, "is_void": void, "error": error, "id_source": "exact",
        "stop_reason": "infra_error" if void else "answered", "numbers": dict.fromkeys(names, 1.0),
    }  # fmt: skip


def test_void_episodes_count_nowhere_but_as_void() -> None:
    summary = summarise(
        [record("a", 1.0), record("a", 0.0, void=True, error="x"), record("b", 0.0), record("b", 1.0), record("b", 0.0)]
    )
    assert summary["success"]["mean"] == 0.5 and summary["outcome"]["mean"] == 0.5
    assert (summary["episodes"], summary["void"], summary["void_errors"]) == (5, 1, {"x": 1})
    # Task a has one attempt that counts and b three: pass@3 is that of b alone.
    assert summary["pass_at_k"] == {"1": pytest.approx((1 + 1 / 3) / 2), "2": pytest.approx(2 / 3), "3": 1.0}
    assert summary["tasks_at_k"] == {"1": 2, "2": 1, "3": 1}


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_every_success_rate_has_an_interval_that_is_open_at_0_and_1(outcome: float) -> None:
    records = [record(task, outcome) for task in ("a", "b") for _ in range(2)]
    summary = summarise(records)
    for name in ("pass_at_k", "pass_hat_k"):
        for k, (low, high) in summary[f"{name}_ci95"].items():
            assert summary[name][k] == outcome and (low, high) == tuple(summary["success"]["ci95"])
            assert high - low > 0.5, "two tasks say little"
    rows = {name: uncertainty for name, _, uncertainty in figure_rows(summary)}
    assert rows["tasks"] == "4 episodes"
    assert all(rows[name].startswith("95 %: ") for name in ("success", "pass@1", "pass@2", "pass^2"))


def test_a_partial_outcome_is_no_success() -> None:
    summary = summarise([record("a", 0.9), record("b", 1.0)])
    assert (summary["success"]["mean"], summary["outcome"]["mean"]) == (0.5, pytest.approx(0.95))


def test_when_all_are_void_there_is_no_mean() -> None:
    summary = summarise([record("a", 0.0, void=True, error="down"), record("a", 0.0, void=True, error="down")])
    assert summary["void_errors"] == {"down": 2} and "success" not in summary and "pass_at_k" not in summary


async def test_an_episode_that_no_worker_can_finish_is_void_and_runs_again(tmp_path: Path) -> None:
    def lose_row_1(run_here: RunAttempt) -> RunAttempt:
        async def run_there(attempt: EvaluationAttempt) -> EpisodeRows:
            if attempt.index == 1 and not attempt.lost:
                raise EnvError("the job ended 3 workers")
            return await run_here(attempt)

        return run_there

    records = last(await run(tmp_path, says_42_where(lambda a: True), elsewhere=lose_row_1, samples=1))
    assert [record["is_void"] for record in records] == [record["task_id"] == "t1" for record in records]
    (lost,) = [record for record in records if record["is_void"]]
    assert "the job ended 3 workers" in lost["error"]
    again = await run(tmp_path, says_42_where(lambda a: True), samples=1)
    assert not any(record["is_void"] for record in last(again))
