"""The process behind `graders.maths.boxed_math`: one JSON request per line in, one verdict per line out.

It imports symbolic algebra once and forks children that judge. A child that exceeds its deadline or processor time is
killed and replaced, which takes milliseconds. This process never calculates, so it always notices the end of its
parent; its children end with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.parent_process import end_with_parent

CPU_S = 0.75
"""Maximum processor time of one verdict, in seconds."""
_MAX_MEMORY = 3 << 30
_WARM_UP = (
    (r"\frac{2}{4}x+1", r"1+\frac{x}{2}"),
    (r"\{1,2\}", "(1,2]"),
    (r"x>\sqrt{2}", r"\sqrt{2}<x"),
    (r"\sin^2 x", "1"),
    (r"\frac{1}{\sqrt{2+\sqrt{1+(3+(x-(2+y)))^{2}}}}", r"\left(1+\cos(2(x+\ln(x+(1))))\right)"),
    (r"[1,2)\cup(3,4]", r"(x_{1+(2)},[1+[2]])"),
    (r"\sum_{k=1}^{3} k", r"\int_0^1 x dx"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
)
"""Loads lazy imports and parser caches before forking, so that every child has them."""


@dataclass(kw_only=True)
class _Child:
    pid: int
    pipe: int
    request: dict[str, Any] | None = None
    deadline: float = 0.0
    line: bytes = b""


class Server:
    """Distributes requests to children and returns their verdicts."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: deque[dict[str, Any]] = deque()
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._replies = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # only verdicts may reach the parent's pipe

    def serve(self) -> None:
        """Serves until stdin closes or the parent ends."""
        parent = os.getppid()
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ)
        read = b""
        while os.getppid() == parent:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fd != 0:
                    self._read_child(self._children[key.fd])
                    continue
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    return
                *lines, read = (read + chunk).split(b"\n")
                self._waiting.extend(map(json.loads, lines))
            self._end_the_late()
            self._hand_out()

    def _patience_s(self) -> float:
        deadlines = [child.deadline for child in self._children.values() if child.request]
        return max(0.0, min([1.0, *(deadline - time.monotonic() for deadline in deadlines)]))

    def _hand_out(self) -> None:
        while self._waiting:
            child = next((candidate for candidate in self._children.values() if candidate.request is None), None)
            if child is None:
                if len(self._children) >= self._count:
                    return
                child = self._fork_child()
            try:
                os.write(child.pipe, json.dumps(self._waiting[0]).encode() + b"\n")
            except OSError:  # it was killed while idle
                self._reap_child(child)
                continue
            child.request = self._waiting.popleft()
            child.deadline = time.monotonic() + child.request["timeout_s"]

    def _read_child(self, child: _Child) -> None:
        try:
            chunk = os.read(child.pipe, 1 << 16)
        except OSError:
            chunk = b""
        child.line += chunk
        if not chunk:
            self._reap_child(child)
        elif child.line.endswith(b"\n"):
            request, line = child.request, json.loads(child.line)
            child.request, child.line = None, b""
            self._write_answer(request, line)

    def _end_the_late(self) -> None:
        now = time.monotonic()
        for child in [
            candidate for candidate in self._children.values() if candidate.request and candidate.deadline <= now
        ]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            self._reap_child(child, is_late=True)

    def _reap_child(self, child: _Child, *, is_late: bool = False) -> None:
        """Reaps a child that has ended or was killed."""
        _, status = os.waitpid(child.pid, 0)
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        del self._children[child.pipe]
        request = child.request
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM)
        if request and was_killed and not is_late and not request.get("is_second_try"):
            self._waiting.appendleft({**request, "is_second_try": True})  # killed from outside
        else:
            self._write_answer(request, {"is_endless": True})

    def _write_answer(self, request: dict[str, Any] | None, reply: dict[str, Any]) -> None:
        if request is not None:
            self._replies.write(json.dumps({"id": request["id"], **reply}) + "\n")

    def _fork_child(self) -> _Child:
        ours, childs = socket.socketpair()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _judge_forever(childs, server)
            finally:
                os._exit(0)
        childs.close()
        child = _Child(pid=pid, pipe=ours.detach())
        self._children[child.pipe] = child
        self._selector.register(child.pipe, selectors.EVENT_READ)
        return child


def _judge_forever(channel: Any, server: int) -> None:
    end_with_parent(server)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in channel.makefile("r"):
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process, inside of long operations too
        reply = _make_reply(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        channel.sendall(json.dumps(reply).encode() + b"\n")


def _make_reply(request: dict[str, Any]) -> dict[str, Any]:
    from verl_agentic.graders.maths.math_judge import TruthError, judge

    try:
        is_right = judge(request["answer"], request["truth"], must_be_evaluated=request["must_be_evaluated"])
        return {"is_right": is_right}
    except TruthError as cause:
        return {"error": str(cause)}
    except Exception:  # symbolic algebra may raise anything
        return {"is_endless": True}


def main() -> None:
    """Serves until stdin closes."""
    logging.disable(logging.WARNING)
    from verl_agentic.graders.maths.math_judge import judge

    server = Server(int(sys.argv[1]))
    for answer, truth in _WARM_UP:
        judge(answer, truth, must_be_evaluated=True)
    gc.freeze()  # the children share this memory as long as nobody writes to it
    server.serve()


if __name__ == "__main__":
    main()
