"""Measures `evaluate --ray`: the same evaluation in one process, on one worker and on two workers of a Ray cluster.

The environment burns CPU time in every step, as a search index or a game does. The policy is scripted, behind a server
of its own. Times are those of whole commands; the cluster of two nodes runs on this machine before they start.

`speedup_2_workers`: time of the single process over that of two workers.

`overhead_1_worker`: time of one worker over that of the single process.

`lost_or_doubled`: episodes that are not in the journal exactly once after a run whose node died, then its driver, and
which was then run again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from _report import Target, median, progress, report

_ENV = """
import time

from verl_agentic import Reward, ToolEnv, tool

@tool
async def look(place: str) -> str:
    '''Looks at a place, for 0.1 s of CPU time on the event loop.

    Args:
        place: its name.
    '''
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    return f"There is nothing at {place}."

class Looking(ToolEnv):
    async def score(self, transcript):
        return Reward(float(transcript.final_answer == "done"))

def make_env(row):
    return Looking(row, [look])
"""
_SERVER = """
import socket

import uvicorn
from fastapi import FastAPI, Request

app = FastAPI()
call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"place": "x"}'}}
looks = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
ends = {"role": "assistant", "content": "done"}

@app.get("/v1/models")
async def models():
    return {"object": "list", "data": [{"id": "scripted", "object": "model"}]}

@app.post("/v1/chat/completions")
async def complete(request: Request):
    messages = (await request.json())["messages"]
    is_done = sum(message["role"] == "tool" for message in messages) >= TURNS
    message, reason = (ends, "stop") if is_done else (looks, "tool_calls")
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}

listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
"""
_MAIN = "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"
_TURNS, _CONCURRENT = 4, 8


def main() -> int:
    """Runs the benchmark and prints its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few episodes: a smoke test, not a measurement")
    args = parser.parse_args()
    repeats, episodes = (1, 20) if args.quick else (3, 200)
    with tempfile.TemporaryDirectory(dir="/tmp") as name, _server() as url, _cluster(Path(name)) as cluster:
        evaluation = _Evaluation(Path(name), url, cluster.address, episodes=episodes)
        times: dict[str, list[float]] = {"single": [], "1 worker": [], "2 workers": []}
        for _ in range(repeats):
            for side, taken in times.items():
                taken.append(evaluation.time(workers=int(side[0]) if side != "single" else None))
                progress(f"{side}: {taken[-1]:.1f} s")
        lost = evaluation.lost_or_doubled(cluster)
    single, one, two = (median(taken) for taken in times.values())
    return report(
        "cluster",
        ratios={"speedup_2_workers": round(single / two, 3), "overhead_1_worker": round(one / single, 3)},
        figures={"lost_or_doubled": lost, "episodes": episodes, "single_s": single, "worker_s": one, "workers_s": two},
        targets={
            "speedup_2_workers": Target(bound=1.7),
            "overhead_1_worker": Target(bound=1.1, at_least=False),
            "lost_or_doubled": Target(bound=0, at_least=False),
        },
    )


class _Evaluation:
    """The command, with a folder for every run of it."""

    def __init__(self, folder: Path, url: str, address: str, *, episodes: int) -> None:
        from verl_agentic import EnvRow, Message
        from verl_agentic.log.files.rows import write_rows

        (folder / "looking.py").write_text(_ENV)
        prompts = [(Message("user", f"Look around in house {number}."),) for number in range(episodes)]
        write_rows((EnvRow(prompt=prompt, ground_truth="done") for prompt in prompts), folder / "rows.jsonl")
        self._folder, self._episodes, self._runs, self._address = folder, episodes, 0, address
        self._command = [
            *(sys.executable, "-c", _MAIN, "evaluate", "--env", f"{folder / 'looking.py'}:make_env"),
            *("--endpoint", f"{url}/v1", "--model", "scripted", "--rows", str(folder / "rows.jsonl")),
            *("--concurrency", str(_CONCURRENT), "--json"),
        ]

    def time(self, *, workers: int | None) -> float:
        """Returns the seconds of an evaluation."""
        command, out = self._full(workers)
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken = time.perf_counter() - started
        assert len(_keys(out)) == self._episodes
        return taken

    def lost_or_doubled(self, cluster: Any) -> int:
        """Removes a node in mid-run, then kills the driver, and runs the command again."""
        command, out = self._full(2)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as driver:
            _wait(lambda: len(_keys(out)) >= self._episodes // 4, driver)
            cluster.remove_node(cluster.list_all_nodes()[-1])
            _wait(lambda: len(_keys(out)) >= self._episodes // 2, driver)
            driver.send_signal(signal.SIGKILL)
        kept = len(_keys(out))
        command[command.index("--workers") + 1] = "1"
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        counts = Counter(_keys(out))
        progress(f"{kept} episodes before the driver died, {len(counts)} different ones of {self._episodes} at the end")
        return self._episodes - len(counts) + sum(counts.values()) - len(counts)

    def _full(self, workers: int | None) -> tuple[list[str], Path]:
        self._runs += 1
        out = self._folder / f"run{self._runs}"
        spread = [] if workers is None else ["--ray", self._address, "--workers", str(workers)]
        return [*self._command, "--out", str(out), *spread], out


def _keys(out: Path) -> list[tuple[str, int]]:
    """Returns the keys of all logged episodes, also of those that replaced another one."""
    keys = []
    for path in out.glob("trajectories/trajectories-*.arrows"):
        with contextlib.suppress(pa.ArrowInvalid, OSError), pa.ipc.open_stream(path.read_bytes()) as stream:
            for batch in stream:
                rows = batch.select(["uid", "session", "place"]).to_pylist()
                keys += [(row["uid"], row["session"]) for row in rows if row["place"] == "last"]
    return keys


def _wait(is_so: Any, driver: subprocess.Popen[bytes]) -> None:
    while not is_so():
        assert driver.poll() is None, "the evaluation ended before its fault"
        time.sleep(0.05)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Serves the scripted policy from another process."""
    source = _SERVER.replace("TURNS", str(_TURNS))
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Any]:
    """Starts two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    os.environ["OMP_NUM_THREADS"] = "1"
    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": str(folder / "ray")}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    try:
        yield cluster
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
