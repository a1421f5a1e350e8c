"""The client of `graders.maths.math_worker`: one verdict per core at a time, each with a deadline."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import Future
from itertools import count
from typing import Any

from verl_agentic.base.errors import ScoringError

_MAX_PROCESSES = 8
_REMEMBERED = 4_096
_Key = tuple[str, str, bool]


class Verifiers:
    """Verifier processes; started on first use, and restarted after they were killed."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._lock = threading.Lock()
        self._endless: OrderedDict[_Key, None] = OrderedDict()
        self._server: _Server | None = None

    async def verdict(self, answer: str, truth: str, *, timeout_s: float, must_be_evaluated: bool) -> bool | None:
        """Returns whether two expressions are equal, or None if algebra did not finish.

        Such pairs are remembered and not tried again.

        Args:
            answer, truth: as `math_notation.tidy` returns them.
            timeout_s: wall time from the start in a process; its processor time has a separate limit.

        Raises:
            ScoringError: the truth cannot be read, or the processes do not start.
        """
        key = (answer, truth, must_be_evaluated)
        with self._lock:
            if key in self._endless:
                self._endless.move_to_end(key)
                return None
        request = {"answer": answer, "truth": truth, "must_be_evaluated": must_be_evaluated, "timeout_s": timeout_s}
        try:
            # A thread starts the processes; awaiting a verdict needs no thread.
            reply = await asyncio.wrap_future(await asyncio.to_thread(self._send_request, request))
        except (OSError, EOFError) as cause:
            raise ScoringError(
                f"the verifier's processes must start and answer, got {type(cause).__name__}: {cause}; "
                "they start again with the next answer"
            ) from cause
        if "error" in reply:
            raise ScoringError(f"the verifier must be able to read the ground truth, got {truth!r}: {reply['error']}")
        if reply.get("is_endless"):
            with self._lock:
                self._endless[key] = None
                if len(self._endless) > _REMEMBERED:
                    self._endless.popitem(last=False)
            return None
        return bool(reply["is_right"])

    def close(self) -> None:
        """Ends the processes if this process started them."""
        if self._server is not None and self._server.is_ours:
            self._server.close()

    def _send_request(self, request: dict[str, Any]) -> Future[dict[str, Any]]:
        with self._lock:
            # A forked copy of this object must not share its parent's pipes.
            if self._server is None or not self._server.is_ours or not self._server.is_alive:
                self._server = _Server()
            return self._server.ask(request)


class _Server:
    """A process of `math_worker`, which forks the judging processes."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verl_agentic.graders.maths.math_worker", str(min(_MAX_PROCESSES, cores))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C belongs to the parent; this ends when its stdin closes
        )
        self._pid = os.getpid()
        self._ids = count()
        self._lock = threading.Lock()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._is_over = False
        threading.Thread(target=self._read_replies, name="verl_agentic.math", daemon=True).start()

    @property
    def is_ours(self) -> bool:
        return self._pid == os.getpid()

    @property
    def is_alive(self) -> bool:
        return not self._is_over and self._process.poll() is None

    def ask(self, request: dict[str, Any]) -> Future[dict[str, Any]]:
        assert self._process.stdin is not None
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._ids)
            self._asked[number] = future
            line = json.dumps({"id": number, **request}) + "\n"
            try:
                if self._is_over:
                    raise EOFError("the process ended")
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
            except (OSError, EOFError) as cause:
                self._asked.pop(number).set_exception(cause)
        return future

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read_replies(self) -> None:
        assert self._process.stdout is not None and self._process.stdin is not None
        with self._process.stdout as replies:
            for line in replies:
                reply = json.loads(line)
                with self._lock:
                    future = self._asked.pop(reply["id"])
                with contextlib.suppress(Exception):  # whoever asked has been cancelled
                    future.set_result(reply)
        self._process.kill()
        self._process.wait()
        with self._lock:
            self._is_over = True
            futures, self._asked = list(self._asked.values()), {}
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        for future in futures:
            with contextlib.suppress(Exception):
                future.set_exception(EOFError("the process ended"))


VERIFIERS = Verifiers()
atexit.register(VERIFIERS.close)
