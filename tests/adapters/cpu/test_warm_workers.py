"""Workers that are forked from the warm process start with what the raylet gave their stub."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ray._private import utils

from verl_agentic.verl.extensions.cpu.warm import warm_process, worker_stub
from verl_agentic.verl.extensions.cpu.warm.warm_workers import SWITCH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has warm workers")
# In the places of Ray's scripts, beside each other.
_REPORT = """
import json, os, signal, sys
blocked = [number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
print(json.dumps({"script": __file__, "name": __name__, "arguments": sys.argv[1:], "folder": os.getcwd(),
    "is_forked": "torch" in sys.modules, "blocked": blocked, "leads_group": os.getpgid(0) == os.getpid(),
    "variables": {name: value for name, value in os.environ.items() if name.startswith("FROM_")}}))
print("an error", file=sys.stderr)
"""
_SERVE = """
import socket, sys
from verl_agentic.verl.extensions.cpu.warm import warm_process
warm_process._MODULES = ()
warm_process.serve(socket.socket(fileno=int(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def raylets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of stubs of a warm process; it must end with its raylet, for which another process stands."""
    address = str(tmp_path_factory.mktemp("warm") / "socket")
    raylet = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    variables = {"RAY_RAYLET_PID": str(raylet.pid), "RAY_JOB_ID": "01000000"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            env={**os.environ, **variables},
        )
    yield {SWITCH: address, **variables}
    assert process.poll() is None
    raylet.communicate(b"\n")
    assert process.wait(30) == 0


def start(folder: Path, variables: dict[str, str], **context: Any) -> dict[str, Any]:
    """Returns what the script that the stub led to printed."""
    for name in ("default_worker.py", "setup_worker.py"):
        (folder / name).write_text(_REPORT)
    arguments = [f"--serialized-runtime-env-context={json.dumps(context)}", "--language=PYTHON"]
    with subprocess.Popen(
        [sys.executable, worker_stub.__file__, *arguments, str(folder / "default_worker.py"), "--worker-id=7", "-x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **variables},
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}),
    ) as process:
        # The pipes end when the worker ends: the stub itself is gone by then.
        out, error = process.communicate(timeout=60)
    assert error == b"an error\n"
    return json.loads(out)


def test_a_worker_is_forked_with_the_arguments_environment_folder_files_and_signals_of_its_stub(
    tmp_path: Path, raylets: dict[str, str]
) -> None:
    worker = start(tmp_path, {**raylets, "FROM_RAYLET": "a", "FROM_JOB": "b"}, env_vars={"FROM_JOB": "c"})
    assert worker == {
        "script": str(tmp_path / "default_worker.py"),
        "name": "__main__",
        "arguments": ["--worker-id=7", "-x"],
        "folder": str(tmp_path),
        "is_forked": True,
        "variables": {"FROM_RAYLET": "a", "FROM_JOB": "c"},
        "blocked": ["SIGINT"],
        "leads_group": True,
    }


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("variables", "context"),
    [
        ({"RAY_JOB_ID": "02000000"}, {}),
        ({"RAY_RAYLET_PID": "1"}, {}),
        ({"PYTHONPATH": "/elsewhere"}, {}),
        ({}, {"env_vars": {"PYTHONPATH": "/elsewhere"}}),
        ({}, {"py_executable": "/other/python"}),
        ({}, {"command_prefix": ["nice"]}),
        ({SWITCH: "/no/such/socket"}, {}),
    ],
)
def test_any_other_worker_is_started_by_the_script_of_ray(
    variables: dict[str, str], context: dict[str, Any], tmp_path: Path, raylets: dict[str, str]
) -> None:
    worker = start(tmp_path, {**raylets, **variables}, **context)
    assert worker["script"] == str(tmp_path / "setup_worker.py") and not worker["is_forked"]
    assert worker["arguments"][-3:] == [str(tmp_path / "default_worker.py"), "--worker-id=7", "-x"]
    assert worker["folder"] == str(tmp_path) and worker["blocked"] == ["SIGINT"]


@pytest.mark.slow
def test_torch_has_as_many_threads_as_the_actor_has_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(utils, "set_omp_num_threads_if_unset", lambda: bool(os.environ.get("IS_UNSET")))
    warm_process._limit_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert not utils.set_omp_num_threads_if_unset() and threads == []
    monkeypatch.setenv("IS_UNSET", "1")
    assert utils.set_omp_num_threads_if_unset() and threads == [3]
