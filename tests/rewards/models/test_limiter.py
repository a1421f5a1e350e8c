"""A rate limit that holds for all processes together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.limiter import EndpointLimits, Limiter

_PROCESS = """
import asyncio, json, sys, time
from verl_agentic.graders.models.limiter import Limiter, EndpointLimits
limits, count, tokens = EndpointLimits(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
hold_s = float(sys.argv[4])

async def main():
    limiter, spans = Limiter(limits, name="e"), []
    async def one():
        async with limiter.request(tokens):
            begun = time.monotonic()
            await asyncio.sleep(hold_s)
            spans.append((begun, time.monotonic()))
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(one() for _ in range(count)))
    print(json.dumps(spans))

asyncio.run(main())
"""


def spans_of_processes(limits: dict, *, count: int, tokens: int = 1, hold_s: float = 0.0) -> list[tuple[float, float]]:
    """Returns when requests of three processes began and ended, in order."""
    arguments = [json.dumps(limits), str(count), str(tokens), str(hold_s)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", _PROCESS, *arguments], **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    outputs = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        outputs.append(process.communicate(timeout=60)[0])
        assert process.returncode == 0
    return sorted(tuple(span) for output in outputs for span in json.loads(output))


async def passes(limiter: Limiter) -> None:
    async with limiter.request(1):
        pass


def most_at_once(spans: list[tuple[float, float]]) -> int:
    return max(sum(begun <= at < ended for begun, ended in spans) for at, _ in spans)


def most_in(spans: list[tuple[float, float]], seconds: float) -> int:
    return max(sum(at <= begun < at + seconds for begun, _ in spans) for at, _ in spans)


@pytest.mark.slow
def test_three_processes_together_keep_to_the_requests_per_minute(tmp_path: Path) -> None:
    # 10 a second, and one second's worth at once: 30 requests take 2 s, where three limits of their own take none.
    spans = spans_of_processes({"requests_per_minute": 600, "folder": str(tmp_path)}, count=10)
    assert len(spans) == 30 and spans[-1][0] - spans[0][0] >= 1.6
    assert most_in(spans, 1.0) <= 25


def test_three_processes_together_keep_to_the_tokens_per_minute(tmp_path: Path) -> None:
    # 1,000 tokens a second: 30 requests of 100.
    spans = spans_of_processes({"tokens_per_minute": 60_000, "folder": str(tmp_path)}, count=10, tokens=100)
    assert spans[-1][0] - spans[0][0] >= 1.6 and most_in(spans, 1.0) <= 25


@pytest.mark.slow
def test_three_processes_together_keep_to_the_requests_at_once(tmp_path: Path) -> None:
    spans = spans_of_processes({"concurrency": 2, "folder": str(tmp_path)}, count=6, hold_s=0.05)
    assert len(spans) == 18 and most_at_once(spans) == 2


@pytest.mark.slow
def test_a_node_keeps_to_its_share(tmp_path: Path) -> None:
    limits = {"concurrency": 9, "requests_per_minute": 3_600, "nodes": 3, "folder": str(tmp_path)}
    # 60 a second, of which this node has 20, and 20 at once at the beginning: 60 requests take 2 s.
    spans = spans_of_processes(limits, count=20, hold_s=0.01)
    assert most_at_once(spans) <= 3 and spans[-1][0] - spans[0][0] >= 1.6


def test_what_a_killed_process_held_is_free_again(tmp_path: Path) -> None:
    limits = {"concurrency": 1, "folder": str(tmp_path)}
    arguments = [json.dumps(limits), "1", "1", "600"]
    holder = subprocess.Popen(
        [sys.executable, "-c", _PROCESS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None and holder.stdout is not None and holder.stdout.readline()
    holder.stdin.write("\n")
    holder.stdin.flush()

    async def main() -> float:
        limiter = Limiter(EndpointLimits(**limits), name="e")
        while True:  # until the other has it
            try:
                await asyncio.wait_for(passes(limiter), 0.1)
            except asyncio.TimeoutError:
                break
        holder.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        async with limiter.request(1):
            return time.monotonic() - begun

    assert asyncio.run(main()) < 5.0
    holder.communicate(timeout=10)


async def test_tokens_that_were_not_foreseen_are_paid_later_and_a_large_request_is_not_stuck(tmp_path: Path) -> None:
    limiter = Limiter(EndpointLimits(tokens_per_minute=60_000, folder=str(tmp_path)), name="e")
    begun = time.monotonic()
    async with limiter.request(4_000):  # more than the bucket holds: it leaves a debt of 3,000
        pass
    limiter.correct(-2_700)
    async with limiter.request(100):  # 0.3 s for the debt, 0.1 s for itself
        waited_s = time.monotonic() - begun
    assert 0.38 <= waited_s < 2.8


@pytest.mark.slow
async def test_a_pause_holds_for_all_who_share_the_limit(tmp_path: Path) -> None:
    one, other = (Limiter(EndpointLimits(folder=str(tmp_path)), name="e") for _ in range(2))
    stranger = Limiter(EndpointLimits(folder=str(tmp_path)), name="another endpoint")
    begun = time.monotonic()
    one.pause(3.0)
    async with stranger.request(1):
        assert time.monotonic() - begun < 2.5
    async with other.request(1):
        assert time.monotonic() - begun >= 3.0


async def test_one_that_gives_up_waiting_leaves_nothing_behind(tmp_path: Path) -> None:
    limiter = Limiter(EndpointLimits(requests_per_minute=60, concurrency=1, folder=str(tmp_path)), name="e")
    async with limiter.request(1):
        pass
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(passes(limiter), 0.05)
    await asyncio.wait_for(passes(limiter), 5)


async def test_a_state_that_is_broken_or_of_another_boot_begins_anew(tmp_path: Path) -> None:
    limits = EndpointLimits(requests_per_minute=600, folder=str(tmp_path))
    limiter = Limiter(limits, name="e")
    (state,) = (folder / "state.json" for folder in tmp_path.iterdir())
    for content in ("", "{", "[]", json.dumps({"requests": 3, "time": 1e12, "not_before": 1e12})):
        state.write_text(content)
        await asyncio.wait_for(passes(limiter), 5)
        assert json.loads(state.read_text())["time"] < 1e12


@pytest.mark.parametrize(
    "limits",
    [{"requests_per_minute": 0}, {"tokens_per_minute": -1}, {"concurrency": 0}, {"concurrency": 2, "nodes": 3},
     {"nodes": 0}],
)  # fmt: skip
def test_limits_that_let_nothing_through_are_refused(limits: dict) -> None:
    with pytest.raises(ConfigError):
        EndpointLimits(**limits)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"verl_agentic-limits-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="must be our own"):
        Limiter(EndpointLimits(), name="e")
