"""Worker processes for components that could hang: a call's process is killed at its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from typing import Any

from verl_agentic.base.errors import ScoringError

_START_TIMEOUT_S = 60.0


class Workers:
    """A pool of processes; every thread of the pool has its own."""

    def __init__(self, count: int | None = None) -> None:
        """Starts nothing yet. `count` is the maximum number of processes; by default one per core, at most 8."""
        self._threads = ThreadPoolExecutor(
            count or min(8, os.cpu_count() or 1), thread_name_prefix="verl_agentic.rewards"
        )
        self._local = threading.local()
        self._all: set[_Worker] = set()
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, use: str, options: Mapping[str, Any], subject: Any, *, timeout_s: float) -> Any:
        """Returns the future of a component's verdict.

        The future raises:
            ScoringError: the component raised, ran into its deadline (its process is killed), or crashed its process.
        """
        return self._threads.submit(self._call_component, use, options, subject, timeout_s)

    def close(self) -> None:
        """Kills every process, those that are starting too; calls that run or wait fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            workers, self._all, self._is_closed = self._all, set(), True
        for worker in workers:
            worker.kill()

    def _call_component(self, use: str, options: Mapping[str, Any], subject: Any, timeout_s: float) -> Any:
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is not None and not worker.is_alive:
            self._drop_worker(worker)
            worker = None
        if worker is None:
            worker = self._local.worker = _Worker()
            with self._lock:
                self._all.add(worker)
                is_closed = self._is_closed
            if is_closed:
                self._drop_worker(worker)
                raise ScoringError(f"component {use!r} was not called: the scorer was closed")
        try:
            return worker.call(use, options, subject, timeout_s)
        except (OSError, EOFError) as cause:
            self._drop_worker(worker)
            kind = type(cause).__name__
            failure = f"was still running after {timeout_s:g} s" if kind == "TimeoutError" else "took its process down"
            raise ScoringError(
                f"component {use!r} {failure} and was killed; the next call gets a new process"
            ) from cause

    def _drop_worker(self, worker: _Worker) -> None:
        worker.kill()
        worker.pipe.close()
        self._local.worker = None
        with self._lock:
            self._all.discard(worker)


class _Worker:
    """One child process. Any thread may kill it; only the one that calls it reads and closes its pipe."""

    def __init__(self) -> None:
        self._killing = threading.Lock()
        self._is_killed = False
        self.pipe, childs_end = Pipe()
        # The working directory on the path is written "" in a parent that runs a script from it.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "verl_agentic.rewards.worker_main", str(childs_end.fileno())],
                pass_fds=[childs_end.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "VERL_AGENTIC_WORKER_PATH": path, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C belongs to the parent; and the whole group is killed at once
            )
        finally:
            childs_end.close()
        try:
            _receive_answer(self.pipe, _START_TIMEOUT_S)
        except (OSError, EOFError):
            self.kill()
            raise

    @property
    def is_alive(self) -> bool:
        """True if the process can take a call."""
        return self._process.poll() is None and not self._is_killed

    def call(self, use: str, options: Mapping[str, Any], subject: Any, timeout_s: float) -> Any:
        """Returns the verdict, or raises if the process ended."""
        key = f"{use} {json.dumps(options, sort_keys=True, default=repr)}"
        self.pipe.send((key, use, options, subject))
        verdict, error = _receive_answer(self.pipe, timeout_s)
        if error is not None:
            raise ScoringError(f"component {use!r} failed, got {error}")
        return verdict

    def kill(self) -> None:
        """Ends the process and its children."""
        with self._killing:
            if self._is_killed:
                return  # its id may be another process's by now
            self._is_killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()


def _receive_answer(pipe: Connection, timeout_s: float) -> Any:
    if not pipe.poll(timeout_s):
        raise TimeoutError
    return pipe.recv()
