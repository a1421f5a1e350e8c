"""A job on a Ray cluster of three nodes on this machine, for tests: nodes, workers and a driver that die."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import ray
from patience import PATIENCE_S
from ray.cluster_utils import Cluster

from verl_agentic.base.errors import AgenticError, ConfigError, DataError
from verl_agentic.cli import main
from verl_agentic.evaluate.evaluation_log import read_episodes
from verl_agentic.log.run_files import find_evaluations
from verl_agentic.verl.extensions.cluster.ray_workers import Work, ray_workers


@contextlib.asynccontextmanager
async def squares(folder: Path) -> AsyncIterator[Work]:
    """Yields a job that notes where it ran, and does what its name says."""
    name = f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}"

    async def work(job: tuple[str, int]) -> tuple[int, str]:
        kind, number = job
        with (folder / "runs").open("a") as file:
            file.write(f"{kind} {number}\n")
        if kind == "dies once" and not (folder / f"died{number}").exists():
            (folder / f"died{number}").touch()
            os._exit(1)
        if kind == "always dies":
            os._exit(1)
        if kind == "meet":
            (folder / f"node-{ray.get_runtime_context().get_node_id()}").touch()
            while len(list(folder.glob("node-*"))) < 3:
                await asyncio.sleep(0.05)
        if kind == "bad row":
            raise DataError("row 7 has no prompt")
        if kind == "fault":
            raise ZeroDivisionError("a fault of the code")
        await asyncio.sleep(0.2)
        return number**2, name

    yield work
    (folder / f"closed-{name}").touch()


@contextlib.asynccontextmanager
async def broken() -> AsyncIterator[Work]:
    raise ConfigError("no such model")
    yield


async def results_of(jobs: list[tuple[str, int]], run: Work) -> list[Any]:
    found = await asyncio.gather(*(run(job) for job in jobs), return_exceptions=True)
    return [f"{type(one).__name__}: {one}" if isinstance(one, AgenticError) else one for one in found]


async def all_cases(folder: Path, cluster: Any, last: Any) -> dict[str, Any]:
    make_work = functools.partial(squares, folder)
    seen: dict[str, Any] = {}
    async with ray_workers(make_work, address=cluster.address, concurrency=6) as run:
        found = await results_of([("meet", number) for number in range(30)], run)
        seen["squares"] = [value for value, _ in found]
        seen["nodes"] = len({name.split("-")[0] for _, name in found})
        found = await results_of([("dies once", 1), *(("square", number) for number in range(12))], run)
        seen["after a death"] = [one[0] for one in found]
        found = await results_of([("always dies", 0), *(("square", number) for number in range(12))], run)
        seen["always dies"], seen["beside it"] = found[0], [one[0] for one in found[1:]]
        seen["errors"] = await results_of([("bad row", 0), ("fault", 0)], run)
        jobs = [("long", number) for number in range(60)]
        task = asyncio.create_task(results_of(jobs, run))
        await asyncio.sleep(1.0)
        await asyncio.to_thread(cluster.remove_node, last)
        seen["after a lost node"] = [one[0] for one in await task]
    seen["closed"] = len(list(folder.glob("closed-*")))
    seen["runs"] = Counter((folder / "runs").read_text().splitlines())["always dies 0"]
    for kind, options in (("broken", {}), ("many", {"workers": 9})):
        try:
            async with ray_workers(broken, address=cluster.address, concurrency=1, **options) as run:
                await run(("square", 1))
        except ConfigError as error:
            seen[kind] = str(error)
    return seen


def run_all(folder: str) -> dict[str, Any]:
    Path("/tmp/ray").mkdir(exist_ok=True)  # `Cluster` writes its address there, wherever its own folder is
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "temp_dir": folder, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    with tempfile.TemporaryDirectory() as notes:
        seen = asyncio.run(all_cases(Path(notes), cluster, nodes[-1]))
    commands = json.loads(os.environ["COMMANDS"])
    seen["evaluation"] = interrupted(commands.pop("evaluate"), cluster.address)
    os.environ["MODEL_KEY"] = "sesame"  # only here: the nodes have started without it
    for name, command in commands.items():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = main([*command, "--ray", cluster.address, "--workers", "2"])
        seen[name] = [code, printed.getvalue()]
    cluster.shutdown()
    return seen


def on_cluster(command: list[str], address: str) -> Any:
    """Runs a command of the command line on two workers."""
    return subprocess.run(full(command, address), check=True, capture_output=True, text=True, timeout=PATIENCE_S)


def full(command: list[str], address: str) -> list[str]:
    program = "from verl_agentic.cli import main; raise SystemExit(main())"
    return [sys.executable, "-c", program, *command, "--ray", address, "--workers", "2"]


def count_episodes(out: Path) -> int:
    return len(read_episodes(out)) if find_evaluations(out) else 0


def interrupted(command: list[str], address: str) -> int:
    """Kills an evaluation on the cluster in its middle and runs it again; returns the episodes that it had then."""
    out = Path(command[command.index("--out") + 1])
    server = command[command.index("--endpoint") + 1].removesuffix("/v1")
    httpx.post(f"{server}/hold", params={"after": 20})
    first = subprocess.Popen(full(command, address))
    while first.poll() is None and count_episodes(out) < 5:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = count_episodes(out)
    httpx.post(f"{server}/hold", params={"after": 10**9})
    on_cluster(command, address)
    return kept


if __name__ == "__main__":
    print(json.dumps(run_all(sys.argv[1])))
