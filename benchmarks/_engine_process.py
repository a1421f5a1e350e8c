"""An engine in a process of its own, which serves the same requests once for every line that it gets."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

_TIMEOUT_S = 1_800.0
_FOLDER = Path(__file__).parent


class EngineProcess:
    """A script of this folder that answers a line when it is ready, then to every line the seconds of a round."""

    def __init__(
        self, python: str, script: str, folder: Path, requests: Sequence[tuple[list[int], int]], **variables: str
    ) -> None:
        """Starts it and waits until it has served one request.

        Args:
            python: interpreter.
            script: file name.
            folder: of the model.
            requests: prompt and number of new tokens.
            variables: of its environment, beside those of this process.

        Raises:
            RuntimeError: it did not start.
        """
        self._name = script
        path = folder / "requests.json"
        path.write_text(json.dumps(requests))
        begin = time.perf_counter()
        self._process = subprocess.Popen(
            [python, str(_FOLDER / script), str(folder), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        try:
            self._read()
        except RuntimeError:
            self.close()
            raise
        self.startup_s = time.perf_counter() - begin

    def run(self) -> float:
        """Serves all requests once; returns the seconds."""
        _stream(self._process.stdin).write("run\n")
        _stream(self._process.stdin).flush()
        return float(self._read())

    def run_cpu_s(self) -> float:
        """Serves all requests once; returns the CPU seconds of the process and all that it started."""
        begin = self._cpu_s()
        self.run()
        return self._cpu_s() - begin

    def own_memory_gb(self) -> float:
        """Returns the memory of all processes, without files that are mapped, as libraries and weights on the disk."""
        total_kb = 0
        for process in self._processes():
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
                name, _, size = line.partition(":")
                total_kb += int(size.split()[0]) * (name in ("Pss_Anon", "Pss_Shmem"))
        return total_kb / 2**20

    def memory_gb(self) -> float:
        """Returns the memory of the process and all that it started; shared pages count once."""
        return sum(process.memory_full_info().pss for process in self._processes()) / 2**30

    def _cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._processes()]
        return sum(one.user + one.system for one in times)

    def _processes(self) -> list[psutil.Process]:
        """Returns the process and all that it started."""
        process = psutil.Process(self._process.pid)
        return [process, *process.children(recursive=True)]

    def close(self) -> None:
        """Ends the process."""
        _stream(self._process.stdin).close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _stream(self._process.stdout).close()

    def _read(self) -> str:
        # It answers with one line at a time, so nothing waits in the buffer that select does not see.
        if not select.select([_stream(self._process.stdout)], [], [], _TIMEOUT_S)[0]:
            raise RuntimeError(f"{self._name} gave no answer in {_TIMEOUT_S:.0f} s")
        line = _stream(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with code {self._process.wait()}; its own output says why")
        return line


def start_vllm(python: str, folder: Path, requests: Sequence[tuple[list[int], int]]) -> EngineProcess:
    """Starts vLLM.

    Raises:
        RuntimeError: it is not installed, or did not start.
    """
    found = subprocess.run([python, "-c", "import importlib.util as u; exit(not u.find_spec('vllm'))"])
    if found.returncode != 0:
        raise RuntimeError("vllm is not installed; run `make vllm`, and name .venv-vllm/bin/python with --vllm-python")
    return EngineProcess(python, "_vllm_side.py", folder, requests)


def default_vllm_python(otherwise: str) -> str:
    """Returns the interpreter of the environment of `make vllm`, if it has been made."""
    python = _FOLDER.parent / ".venv-vllm" / "bin" / "python"
    return str(python) if python.exists() else otherwise


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
