"""Measures what an environment server costs: the same scripted episodes with their environments here and in a server.

The server is another process on this machine. The environment does nothing, so that all time is the loop's and the
wire's.

`episodes_per_s_vs_local`: episodes per second with 64 at a time through the server, over that without one.

`cpu_vs_local`: CPU time of these episodes, both ends together, over that of the local ones.

`added_ms_per_step`: median time of a step through the server for one episode alone, less that of a local step. It holds
the 2 ms in which a call waits for others.

`shared_vs_single_requests`: CPU time of steps of 64 sessions that share requests, over that of sessions with a
connection and requests of their own, both ends together.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from _report import Target, median, progress, report

from verl_agentic import Action, EnvRow, EpisodeLimits, Message, ToolCall, run_episodes, scripted
from verl_agentic.bridges.remote.link import EnvLink
from verl_agentic.bridges.remote.package import make_env as make_remote
from verl_agentic.cpu.testing import tiny_codecs

os.environ["VERL_AGENTIC_ENV_TOKEN"] = _TOKEN = "benchmark"
_TURNS, _CONCURRENT = 8, 64
_ENV = """
from verl_agentic import Message, Observation, Reward, StopReason, ToolEnv, tool

@tool
def look(place: str) -> str:
    '''Returns what is at a place.

    Args:
        place: its name.
    '''
    return f"There is nothing at {place}. " * 8

class Looking(ToolEnv):
    async def score(self, transcript):
        return Reward(float(transcript.final_answer == "done"))

def make_env(row):
    return Looking(row, [look])
"""
_SERVE = "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"
_ACTION = Action(
    turn=0, text="I look there. " * 20, content="I look there.", tool_calls=(ToolCall("look", {"place": "x"}, "c"),)
)


def main() -> int:
    """Runs the benchmark and prints its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few episodes: a smoke test, not a measurement")
    args = parser.parse_args()
    repeats, episodes, steps = (1, 64, 20) if args.quick else (3, 256, 200)
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as (url, process):
        place = f"{Path(folder) / 'looking.py'}:make_env"
        ratios, figures = asyncio.run(
            _measure(place, url, process, folder=Path(folder), repeats=repeats, episodes=episodes, steps=steps)
        )
    return report(
        "env_server",
        ratios=ratios,
        figures=figures,
        targets={
            "episodes_per_s_vs_local": Target(bound=0.3),
            "cpu_vs_local": Target(bound=2.0, at_least=False),
            "added_ms_per_step": Target(bound=10.0, at_least=False),
            "shared_vs_single_requests": Target(bound=0.5, at_least=False),
        },
    )


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Serves the environment from another process."""
    (folder / "looking.py").write_text(_ENV)
    command = [sys.executable, "-c", _SERVE, "env", "serve", f"{folder / 'looking.py'}:make_env", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split(" at ")[1].split(",")[0], psutil.Process(process.pid)
        finally:
            process.terminate()


async def _measure(
    place: str, url: str, process: psutil.Process, *, folder: Path, repeats: int, episodes: int, steps: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    from verl_agentic import load_env

    sides = {"local": load_env(place), "server": functools.partial(make_remote, url=url)}
    play = _player(folder, episodes, cpu_s=lambda: _cpu_s(process))
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):  # the first one warms up
        for name, factory in sides.items():
            (rate, used), each = await play(factory), await _step_times(factory, steps)
            if repeat:
                cpu[name].append(used)
                rates[name].append(rate)
                times[name].append(median(each))
            progress(f"{name}: {rate:.0f} episodes/s, {median(each):.3g} ms a step")
    single = await _parallel_steps(url, process, steps, num_links=_CONCURRENT)
    shared = await _parallel_steps(url, process, steps, num_links=1)
    figures: dict[str, Any] = {f"episodes_per_s.{name}": median(found) for name, found in rates.items()}
    figures |= {f"step_ms.{name}": median(found) for name, found in times.items()}
    figures["added_ms_per_step"] = median(
        [there - here for there, here in zip(times["server"], times["local"], strict=True)]
    )
    figures |= {"cpu_ms_per_step.single": single, "cpu_ms_per_step.shared": shared}
    figures |= {"turns": _TURNS, "concurrent": _CONCURRENT}
    ratios = {
        "episodes_per_s_vs_local": median([a / b for a, b in zip(rates["server"], rates["local"], strict=True)]),
        "cpu_vs_local": median([a / b for a, b in zip(cpu["server"], cpu["local"], strict=True)]),
        "shared_vs_single_requests": float(f"{shared / single:.4g}"),
    }
    return ratios, figures


def _player(folder: Path, episodes: int, *, cpu_s: Callable[[], float]) -> Callable[[Callable[[EnvRow], Any]], Any]:
    """Returns what plays all episodes with environments of a factory; it returns episodes per second and CPU time."""
    tokenizer, codecs = tiny_codecs(folder)
    limits = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=40_000, max_turns=_TURNS + 1, max_retries=0)

    def turn(messages: Sequence[Message]) -> Message:
        if sum(message.role == "assistant" for message in messages) < _TURNS:
            return Message("assistant", "I look there.", tool_calls=_ACTION.tool_calls)
        return Message("assistant", "done")

    setup = scripted(turn, codec=codecs["chat"], tokenizer=tokenizer, limits=limits)
    rows = [EnvRow(prompt=(Message("user", f"Look around, {number}."),)) for number in range(episodes)]

    async def play(factory: Callable[[EnvRow], Any]) -> tuple[float, float]:
        started, before = time.perf_counter(), cpu_s()
        found = await run_episodes(rows, make_env=factory, setup_for=lambda *_: setup, max_concurrent=_CONCURRENT)
        assert all(episode.reward.outcome == 1.0 and len(episode.actions) == _TURNS + 1 for episode in found)
        return len(rows) / (time.perf_counter() - started), cpu_s() - before

    return play


async def _step_times(factory: Callable[[EnvRow], Any], steps: int) -> list[float]:
    """Returns the times of single steps, in milliseconds."""
    env, times = factory(EnvRow(prompt=(Message("user", "Look around."),))), []
    await env.start()
    for _ in range(steps):
        started = time.perf_counter()
        await env.step(_ACTION)
        times.append(1e3 * (time.perf_counter() - started))
    await env.close()
    return times


async def _parallel_steps(url: str, process: psutil.Process, steps: int, *, num_links: int) -> float:
    """Returns the CPU time of a step of parallel sessions, in milliseconds; each link has its own requests."""
    links = [EnvLink(url, token=_TOKEN, batch_wait_s=0.002) for _ in range(num_links)]
    rounds = max(1, steps // 20)

    async def play(number: int) -> None:
        link, name = links[number % num_links], f"{num_links}-{number}"
        call = {"op": "start", "session": name, "number": 0, "data": {"row": EnvRow(prompt=()), "config": {}}}
        await link.call(call)
        for count in range(rounds):
            answer = await link.call({"op": "step", "session": name, "number": count + 1, "data": {"action": _ACTION}})
            assert answer["result"]["observation"]["messages"]
        await link.call({"op": "close", "session": name, "data": {}})

    before = _cpu_s(process)
    await asyncio.gather(*(play(number) for number in range(_CONCURRENT)))
    used = _cpu_s(process) - before
    await asyncio.gather(*(link.close() for link in links))
    return float(f"{1e3 * used / (_CONCURRENT * (rounds + 2)):.4g}")


def _cpu_s(server: psutil.Process) -> float:
    """Returns the CPU time of both ends so far."""
    there = server.cpu_times()
    return time.process_time() + there.user + there.system


if __name__ == "__main__":
    sys.exit(main())
