"""The scorer: a component that fails in any way is an error of its sample, never a 0, and holds nobody up."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
from samples import sample

from verl_agentic.base.errors import ScoringError
from verl_agentic.base.types import StopReason
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.worker_pool import Workers

FILE = Path(__file__).with_name("scorer_components.py")


def use(function: str, **options: Any) -> dict[str, Any]:
    return {"use": f"{FILE}:{function}", **options}


def is_gone(pid: int) -> bool:
    """Tells whether a process has ended, giving init a moment to reap it."""
    deadline = time.monotonic() + 5.0
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def scorers() -> Iterator[Any]:
    made: list[Scorer] = []

    def make(*entries: dict[str, Any], **options: Any) -> Scorer:
        made.append(Scorer(Rubric.from_mapping({"components": list(entries), **options}), workers=2))
        return made[-1]

    yield make
    for scorer in made:
        scorer.close()


def answered(text: str, truth: Any = "7", **options: Any) -> Any:
    return sample([text], ground_truth=truth, **options)


async def test_parts_of_all_kinds_are_scored_together(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("quick", weight=0.2), use("slow", weight=0.2, options={"wait_s": 0.01}))
    score = await scorer.score(answered("7"))
    assert score.total == pytest.approx(1.4) and score.acc == 1.0 and score.void is None
    assert (await scorer.score(answered("eight"))).total == pytest.approx(0.2)


async def test_plain_functions_run_in_another_process_and_may_print(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("where", weight=0.2), use("noisy", weight=0.1))
    score = await scorer.score(answered("7", extra={"pid": os.getpid()}))
    assert (score.numbers["reward/where"], score.numbers["reward/noisy"]) == (0.0, 1.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("hang", "was still running after 3 s and was killed"),
        ("exit", "took its process down and was killed"),
        ("sys.exit", "SystemExit: 3"),
        ("raise", "RuntimeError: no such file"),
        ("nan", "a finite number, got nan"),
        ("range", r"value 1.5 is not in its range \[0.0, 1.0\]"),
        ("text", "returns a number or Graded, got str"),
        ("nothing", "returns a number or Graded, got NoneType"),
        ("info", r"info \['a'\] was not declared"),
    ],
)
async def test_a_failing_component_voids_its_sample_and_the_next_one_is_scored(
    scorers: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, says: str
) -> None:
    deadline = {"timeout_s": 3.0} if how == "hang" else {}
    scorer = scorers(use("solved"), use("ill", weight=0.2, options={"how": how}, **deadline))
    pids = tmp_path / "pids"
    with caplog.at_level(logging.WARNING):
        score = await scorer.score(answered("7", id="row3/2", extra={"pids": str(pids)}))
        while how == "hang" and not pids.exists():  # it was killed before it began: the machine is busy
            score = await scorer.score(answered("7", id="row3/2", extra={"pids": str(pids)}))
    assert score.void is not None and score.total == 0.0 and score.numbers["scoring/failed"] == 1.0
    assert re.search(says, score.void), score.void
    assert "'row3/2'" in caplog.text
    if how == "hang":
        assert all(is_gone(int(pid)) for pid in pids.read_text().split())
    assert (await scorers(use("solved")).score(answered("7"))).total == 1.0


@pytest.mark.parametrize("on_error", ["void", "stop"])
async def test_a_held_out_grader_that_fails_costs_no_sample(scorers: Any, on_error: str) -> None:
    scorer = scorers(use("solved"), use("ill", weight=0, options={"how": "raise"}), on_error=on_error)
    score = await scorer.score(answered("7"))
    assert (score.total, score.void, score.numbers["abstained/ill"]) == (1.0, None, 1.0)


async def test_the_run_can_be_stopped_instead(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("ill", weight=0.2, options={"how": "raise"}), on_error="stop")
    with pytest.raises(ScoringError, match="'a'"):
        await scorer.score(answered("7", id="a"))


async def test_a_coroutine_has_the_deadline_too(scorers: Any) -> None:
    started = time.monotonic()
    score = await scorers(use("solved"), use("slow", weight=0.2), timeout_s=0.2).score(answered("7"))
    assert "still running after 0.2 s" in str(score.void) and time.monotonic() - started < 60
    assert not (
        await scorers(use("solved", timeout_s=60), use("queued", weight=0.2), timeout_s=0.2).score(answered("7"))
    ).void
    patient = use("slow", weight=0.2, timeout_s=60, options={"wait_s": 0.4})
    assert not (await scorers(use("solved", timeout_s=60), patient, timeout_s=0.2).score(answered("7"))).void


@pytest.mark.slow
async def test_one_that_hangs_holds_nobody_up(scorers: Any, tmp_path: Path) -> None:
    sick = scorers(use("solved"), use("ill", weight=0.2, options={"how": "hang"}), timeout_s=6.0)
    subjects = [answered("7", id=str(i), extra={"pids": str(tmp_path / str(i))}) for i in range(2)]
    hanging = asyncio.gather(*(sick.score(subject) for subject in subjects))
    assert (await scorers(use("solved")).score(answered("7"))).total == 1.0
    assert not hanging.done()
    assert all(score.void for score in await hanging)


async def test_a_gate_keeps_a_term_out_until_its_condition_holds(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("quick", weight=0.4, only_if={"solved": 1.0}))
    assert (await scorer.score(answered("7"))).total == pytest.approx(1.4)
    assert (await scorer.score(answered("8"))).total == 0.0


async def test_a_penalty_may_be_for_failures_alone(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("quick", weight=-0.4, unless={"solved": 1.0}))
    assert (await scorer.score(answered("7"))).total == 1.0
    assert (await scorer.score(answered("8"))).total == pytest.approx(-0.4)


async def test_a_fallback_speaks_only_where_the_verifier_has_no_opinion(scorers: Any) -> None:
    judge = use("quick", name="self_judge", kind="outcome", fallback_for="known")
    scorer = scorers(use("known"), judge)
    assert (await scorer.score(answered("8"))).total == 0.0, "short, but the verifier knows better"
    assert (await scorer.score(answered("8", truth=None))).total == 1.0


async def test_a_fallback_does_not_run_where_its_first_term_was_excluded(scorers: Any) -> None:
    first = use("known", data_sources=["a"], only_if={"quick": 1.0})
    scorer = scorers(use("quick", weight=0), first, use("noisy", kind="outcome", fallback_for="known"))
    # The first term abstains on all samples that it sees: the second has another source, the third fails the gate.
    subjects = [answered(text, truth=None, data_source=name) for text, name in (("8", "a"), ("8", "b"), ("eight", "a"))]
    assert [(await scorer.score(subject)).total for subject in subjects] == [1.0, 0.0, 0.0]


async def test_a_term_for_some_sources_leaves_the_others_alone(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("quick", weight=0.2, data_sources=["a"]))
    totals = [(await scorer.score(answered("7", data_source=name))).total for name in ("a", "b")]
    assert totals == pytest.approx([1.2, 1.0])


async def test_overlong_samples_are_masked_and_not_punished(scorers: Any) -> None:
    scorer = scorers(use("solved"), mask_overlong=100)
    cut = await scorer.score(answered("7", stop_reason=StopReason.MAX_TOKENS))
    long = await scorer.score(sample(["7"], ground_truth="7", num_tokens=[101]))
    fine = await scorer.score(sample(["7"], ground_truth="7", num_tokens=[100]))
    assert [bool(s.void) for s in (cut, long, fine)] == [True, True, False]
    assert cut.numbers["scoring/masked"] == 1.0 and fine.numbers["scoring/masked"] == 0.0


async def test_samples_that_end_for_a_named_reason_are_masked(scorers: Any) -> None:
    scorer = scorers(use("solved"), mask_stops=["max_turns", "no_action"])
    ends = [StopReason.MAX_TURNS, StopReason.NO_ACTION, StopReason.MAX_TOKENS, StopReason.ENV_DONE]
    scores = [await scorer.score(answered("7", stop_reason=end)) for end in ends]
    assert [bool(score.void) for score in scores] == [True, True, False, False]
    assert [score.numbers["scoring/masked"] for score in scores] == [1.0, 1.0, 0.0, 0.0]


async def test_a_group_component_sees_the_whole_group_and_abstains_on_a_single_sample(scorers: Any) -> None:
    scorer = scorers(use("solved"), use("rank", weight=0.4))
    group = [sample(["7"], ground_truth="7", num_tokens=[n]) for n in (30, 10, 20)]
    assert [s.total for s in await scorer.score_group(group)] == pytest.approx([1.0, 1.4, 1.2])
    alone = await scorer.score(group[0])
    assert alone.total == 1.0 and alone.numbers["abstained/rank"] == 1.0
    broken = await scorers(use("solved"), use("too_few", weight=0.4)).score_group(group)
    assert all("1 verdicts for 3 samples" in str(score.void) for score in broken)


async def test_only_so_many_samples_are_scored_at_once_and_waiting_costs_no_deadline() -> None:
    entries = [use("solved", kind="outcome"), use("slow", weight=0.2, options={"wait_s": 0.1})]
    scorer = Scorer(Rubric.from_mapping({"components": entries, "timeout_s": 1.0}), workers=2, max_concurrent=2)
    started = time.monotonic()
    scores = await asyncio.gather(*(scorer.score(answered("7")) for _ in range(24)))
    # Twelve rounds of two: longer than the deadline of one.
    assert time.monotonic() - started > 1.2 and not any(score.void for score in scores)
    scorer.close()


def test_a_pool_that_closes_while_a_process_starts_leaves_none() -> None:
    workers, before = Workers(1), set(psutil.Process().children())
    future = workers.submit(f"{FILE}:quick", {}, answered("7"), timeout_s=60.0)
    while not (started := set(psutil.Process().children()) - before):
        time.sleep(0.001)
    workers.close()
    with pytest.raises(ScoringError, match="closed"):
        future.result(timeout=60)
    assert not any(process.is_running() for process in started)


def test_a_pool_that_closes_during_a_call_leaves_the_pipe_to_the_thread_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_by: list[str] = []
    close = Connection.close
    monkeypatch.setattr(
        Connection, "close", lambda pipe: (closed_by.append(threading.current_thread().name), close(pipe))
    )
    workers, pids = Workers(1), tmp_path / "pids"
    subject = answered("7", extra={"pids": str(pids)})
    future = workers.submit(f"{FILE}:ill", {"how": "hang"}, subject, timeout_s=60.0)
    while not (pids.exists() and len(pids.read_text().split()) == 2):
        time.sleep(0.001)
    workers.close()
    with pytest.raises(ScoringError, match="process"):
        future.result(timeout=60)
    # The child's end after the start, ours once at the end: a second close could hit a file that was opened since.
    assert len(closed_by) == 2 and all("verl_agentic.rewards" in name for name in closed_by)
    assert all(is_gone(int(pid)) for pid in pids.read_text().split())


def test_a_component_that_hangs_does_not_outlive_its_parent(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"""
import asyncio, os, signal, sys, threading, time
sys.path.insert(0, {str(FILE.parent)!r})
from samples import sample
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.scorer import Scorer

def die_when_it_hangs():
    while not os.path.exists({str(pids)!r}) or len(open({str(pids)!r}).read().split()) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die_when_it_hangs, daemon=True).start()
entries = [{{"use": "{FILE}:solved"}}, {{"use": "{FILE}:ill", "weight": 0.2, "options": {{"how": "hang"}}}}]
scorer = Scorer(Rubric.from_mapping({{"components": entries}}))
asyncio.run(scorer.score(sample(["7"], ground_truth="7", extra={{"pids": {str(pids)!r}}})))
"""
    # No pipe: what the component starts would hold it open.
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    component, child = map(int, pids.read_text().split())
    assert is_gone(component)
    os.kill(child, signal.SIGKILL)  # what a component starts is its own affair
