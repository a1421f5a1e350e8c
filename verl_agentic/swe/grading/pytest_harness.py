"""Runs pytest on a repository inside of a sandbox. Its source is sent there; it imports only the standard library.

The parent never imports code of the repository. The child runs pytest and sends one message per test through a pipe.
The parent reads the secret from stdin after the last child has ended, and prints the results with an HMAC. What code of
the repository inspects meanwhile is sent, too (`audit_hook`).

    python -I -B grade/harness.py grade/job.json grade/audit_hook.py < secret
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import hashlib
import hmac
import importlib
import inspect
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

# The functions below keep these built-in functions: code of the repository may change those of Python.
globals()["__builtins__"] = dict(vars(builtins))

_PR_SET_DUMPABLE = 4
_MAX_WHY = 1000
_MAX_MESSAGES_BYTES = 1 << 26
_MAX_HANGS = 5
_GRACE_S = 2.0
_CHANGED_BY_PYTEST = frozenset({"_pytest.config.Config", "_pytest.assertion.util"})


def main() -> None:
    """Runs the job in the file that the arguments name."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job: dict[str, Any] = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        job["hook"] = compile(file.read(), "audit_hook", "exec")
    for path in sys.argv[:3]:
        os.unlink(path)  # code of the repository must not see that this runner is used
    _set_dumpable(0)  # closes memory and descriptors of this process to processes of the same user
    folder = os.getcwd()
    job["repo"], job["site"] = f"{folder}/repo", f"{folder}/site" if job["has_site"] else ""
    if job["image_folder"]:
        _copy_repository(job)
    for path in job["removed"]:
        os.unlink(f"{job['repo']}/{path}")
        with contextlib.suppress(OSError):  # a file may take the place of its folder
            os.removedirs(os.path.dirname(f"{job['repo']}/{path}"))
    if job["image_folder"]:
        shutil.copytree("changed", job["repo"], dirs_exist_ok=True)
    _prepare_process(job)
    import pytest  # pyright: ignore[reportMissingImports]  # of the site; before any code of the repository

    _load_plugins()
    sys.pycache_prefix = "/nonexistent"  # no bytecode of the repository, which may not fit its source
    print(f"ready {pytest.__version__}", flush=True)
    marks = {path: _read_mark(path) for path in _list_trusted(job)}
    watch = Watch(job)
    watch.run()
    watch.tampered += [
        f"changed {path[len(folder) + 1 :]}" for path, mark in marks.items() if mark != _read_mark(path)
    ][:20]
    body = json.dumps(watch.result(), sort_keys=True)
    secret = sys.stdin.buffer.read()
    print(json.dumps({"body": body, "mac": hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()}), flush=True)


class Watch:
    """Starts children and reads their messages."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._deadline = time.monotonic() + job["wall_s"]
        self._running: str | None = None
        self._since = time.monotonic()
        self._size = 0
        self._end: str | None = None
        self._hangs = 0
        self.outcomes: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.tampered: list[str] = []
        self.inspections: list[list[str]] = []
        self.ended = False

    def run(self) -> None:
        """Runs tests to the end. After a test that hangs, a new child runs the tests that are left."""
        while self._hangs <= _MAX_HANGS and self._run_child():
            pass

    def result(self) -> dict[str, Any]:
        """Returns the results."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "outcomes": self.outcomes,
            "why": self.why,
            "ended": self.ended,
            "tampered": self.tampered,
            "inspections": self.inspections,
            "cpu_s": usage.ru_utime + usage.ru_stime,
        }

    def _run_child(self) -> bool:
        """Returns whether another child is needed."""
        token = os.urandom(16).hex()
        # No process can open the other end of a pair of sockets by /proc, as it can with a pipe.
        parent, child = socket.socketpair()
        parent.shutdown(socket.SHUT_WR)
        child.shutdown(socket.SHUT_RD)
        reading, writing = parent.detach(), child.detach()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            try:
                _run_pytest(self._job, writing, token, frozenset(self.outcomes))
            finally:
                os._exit(97)
        os.close(writing)
        self._running, self._end, self._since = None, None, time.monotonic()
        is_hung = self._read_messages(reading, token)
        os.close(reading)
        status = _stop_child(pid, wait=self._end is not None)
        self.ended = self._end in ("0", "1", "5") and status == 0
        if not is_hung or self._running is None:
            return False
        self._hangs += 1
        self.outcomes[self._running] = "failed"
        self.why[self._running] = f"timeout: the test took more than {self._job['test_s']:g} s"
        return not self.tampered

    def _read_messages(self, pipe: int, token: str) -> bool:
        """Reads messages until the end; returns whether a test hangs."""
        rest = b""
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while not self.tampered:
            now = time.monotonic()
            limit = self._deadline if self._running is None else min(self._deadline, self._since + self._job["test_s"])
            if now >= limit:
                return limit < self._deadline
            if not poll.poll(max(1, int((limit - now) * 1000))):
                continue
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return False
            self._size += len(piece)
            if self._size > _MAX_MESSAGES_BYTES:
                self.tampered.append("a flood of messages")
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._handle_message(line.decode("ascii", "replace").split(" "), token)
            if self._end is not None:
                return False
        return False

    def _handle_message(self, words: list[str], token: str) -> None:
        if len(words) != 5 or words[0] != token or self._end is not None:
            self.tampered.append("a message that the reporter did not send")
            return
        try:
            kind, test, outcome, why = words[1], _decode_hex(words[2]), words[3], _decode_hex(words[4])
        except ValueError:
            self.tampered.append("a message that the reporter did not send")
            return
        if kind == "end":
            self._end = outcome
        elif kind == "changed":
            self.tampered.append(f"changed {why}")
        elif kind == "inspects":
            self.inspections.append([outcome, *why.split("\n")])
        elif kind == "collect":
            self.outcomes[test], self.why[test] = "error", why
        elif kind == "start":
            self._running, self._since = test, time.monotonic()
        elif test in self.outcomes or test != self._running:
            self.outcomes[test] = "conflict"
        else:
            self.outcomes[test] = outcome
            if why:
                self.why[test] = why
            self._running = None


class Reporter:
    """Pytest plugin: sends the outcome of each test once, from the process that pytest runs in.

    A test has passed only if its own function was seen to return: a changed report is not enough.
    """

    def __init__(self, pipe: int, token: str, finished_ids: frozenset[str]) -> None:
        self._finished_ids = finished_ids
        self._state: dict[str, tuple[int, str, str]] = {}
        self._codes: dict[str, Any] = {}
        self._returned: set[str] = set()
        self._runner = _read_runner()
        self._modules: list[_Space] = []
        owner, write, pid = os.getpid(), os.write, os.getpid

        def send(kind: str, test: str, outcome: str = "-", why: str = "") -> None:
            if pid() == owner:
                write(pipe, f"{token} {kind} {_encode_hex(test)} {outcome} {_encode_hex(why[:_MAX_WHY])}\n".encode())

        status, leave = os.fstat, os._exit
        identity = status(pipe).st_dev, status(pipe).st_ino

        def report(kind: str, place: str, target: str) -> None:
            try:
                pipe_status = status(pipe)
                # Replaced for a moment: the report would be lost.
                if (pipe_status.st_dev, pipe_status.st_ino) != identity:
                    leave(98)
                send("inspects", "", kind, f"{place}\n{target}")
            except BaseException:
                leave(98)

        self.send, self.report = send, report

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._finished_ids]
        self._codes = {item.nodeid: _read_code(item) for item in items}
        modules = {item.nodeid.split("::")[0]: getattr(item, "module", None) for item in items}
        self._modules = [
            _snapshot_functions(path, vars(module)) for path, module in modules.items() if module is not None
        ]
        self._check_runner()
        sys.audit("verl_agentic.hide")  # pytest puts modules into their packages

    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        function = getattr(item, "obj", None)
        if self._codes.get(item.nodeid) is None or not callable(function):
            self._codes.pop(item.nodeid, None)  # no function: pytest alone decides
            yield
            return
        if _read_code(item) is self._codes[item.nodeid]:
            item.obj = _observe_return(function, functools.partial(self._returned.add, item.nodeid))
        yield
        item.obj = function
        self._check_runner()

    def _check_runner(self) -> None:
        for name, space, before in self._runner:
            if [key for key, value in before.items() if space.get(key) is not value]:
                self.send("changed", "", "-", name)
        for name, space, before in self._modules:
            for key in [key for key, value in before.items() if space.get(key) is not value]:
                self.report("changes", "tests:0", f"{name}::{key}")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.send("collect", report.nodeid or ".", "error", _read_reason(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._state[nodeid] = (0, "error", "the test has not run")
        self.send("start", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        rank, outcome, why = _rank_report(report)
        if rank >= self._state.get(report.nodeid, (0, "", ""))[0]:
            self._state[report.nodeid] = (rank, outcome, why)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        _, outcome, why = self._state.pop(nodeid, (0, "error", "no report"))
        if outcome == "passed" and nodeid in self._codes and nodeid not in self._returned:
            outcome = "conflict"
        self.send("test", nodeid, outcome, why)


def _read_code(item: Any) -> Any:
    """Returns the code of a test's function, or None."""
    function = getattr(item, "obj", None)
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _observe_return(function: Any, has_returned: Callable[[], None]) -> Any:
    """Returns a function that calls another one and says that it returned."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **options: Any) -> Any:
            result = await function(*args, **options)
            has_returned()
            return result

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        has_returned()
        return result

    return call


_Space = tuple[str, Any, dict[str, Any]]


def _read_runner() -> list[_Space]:
    """Returns name, live contents and present functions of pytest's, pluggy's and unittest's modules and classes."""
    spaces: list[tuple[str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] in ("pytest", "_pytest", "pluggy", "unittest", "doctest"):
            spaces.append((name, vars(module)))
            classes = [value for value in vars(module).values() if isinstance(value, type)]
            spaces += [(f"{name}.{cls.__name__}", vars(cls)) for cls in classes if cls.__module__ == name]
    return [_snapshot_functions(name, space) for name, space in spaces if name not in _CHANGED_BY_PYTEST]


def _snapshot_functions(name: str, space: Any) -> _Space:
    kinds = (types.FunctionType, classmethod, staticmethod, property, type)
    return name, space, {key: value for key, value in space.items() if isinstance(value, kinds)}


def _rank_report(report: Any) -> tuple[int, str, str]:
    """Returns rank, outcome and reason of a report. The highest rank of a test's reports is its outcome."""
    if hasattr(report, "wasxfail"):
        return 3, "xpassed" if report.passed else "xfailed", ""
    if report.failed:
        return (4, "failed", _read_reason(report)) if report.when == "call" else (5, "error", _read_reason(report))
    if report.skipped:
        return 2, "skipped", ""
    return (1, "passed", "") if report.when == "call" else (0, "error", "the test has not run")


def _read_reason(report: Any) -> str:
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    text = getattr(crash, "message", None) or str(getattr(report, "longrepr", ""))[-_MAX_WHY:]
    return str(text)[:_MAX_WHY]


def _run_pytest(job: dict[str, Any], pipe: int, token: str, finished_ids: frozenset[str]) -> None:
    """Runs pytest; never returns."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    _set_dumpable(1)  # tests may read their own /proc
    os.chdir(job["repo"])
    sys.argv = ["pytest"]
    sys.path += [f"{job['repo']}/{path}".removesuffix("/.") for path in (*job["test_folders"], *job["roots"])]
    import pytest  # pyright: ignore[reportMissingImports]

    Reporter.pytest_runtest_call = pytest.hookimpl(hookwrapper=True)(Reporter.pytest_runtest_call)
    reporter = Reporter(pipe, token, finished_ids)
    hook: dict[str, Any] = {"__builtins__": dict(vars(builtins)), "__name__": "audit_hook"}
    exec(job["hook"], hook)
    hook["install"](
        reporter.report,
        repo=job["repo"],
        site=job["site"],
        tests=frozenset(job["hidden"]),
        harness=_run_pytest.__code__.co_filename,
    )
    leave = os._exit
    arguments = [
        "-q", "--rootdir", job["repo"], "-p", "no:cacheprovider", "--import-mode=importlib", "--tb=short",
        "--continue-on-collection-errors", "-o", "addopts=", "-o", "required_plugins=", "-o", "pythonpath=",
        *(word for name in job["plugins"] for word in ("-p", name)), *job["targets"],
    ]  # fmt: skip
    code = pytest.main(arguments, plugins=[reporter])
    reporter.send("end", "", str(int(code)))
    leave(0)


def _copy_repository(job: dict[str, Any]) -> None:
    """Copies the repository of the image, without git's folder and a virtual environment.

    Packages that are installed in place must not come from the image's folder.
    """
    source = job["image_folder"]

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if folder == source and name in (".git", ".venv")]

    shutil.copytree(source, job["repo"], symlinks=True, ignore=left_out)
    for folder, _, names in os.walk(job["repo"]):
        for path in (folder, *(f"{folder}/{name}" for name in names if not os.path.islink(f"{folder}/{name}"))):
            os.chmod(path, os.stat(path).st_mode | 0o600)
    sys.path[:] = [path for path in sys.path if "site-packages" in path or not f"{path}/".startswith(f"{source}/")]
    sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]


def _prepare_process(job: dict[str, Any]) -> None:
    """Sets the environment and the paths of imports, without the repository."""
    variables = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    inside = [job["site"], *(f"{job['repo']}/{root}".removesuffix("/.") for root in job["roots"])]
    os.environ.clear()
    os.environ.update(
        variables,
        HOME="/nonexistent",
        LANG="C.UTF-8",
        TZ="UTC",
        PYTHONPATH=os.pathsep.join(filter(None, inside)),
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONHASHSEED="0",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )
    if job["site"]:
        sys.path[:] = [path for path in sys.path if not path.rstrip("/").endswith(("site-packages", "dist-packages"))]
        sys.path.append(job["site"])


def _load_plugins() -> None:
    """Imports pytest's own plugins here, from the bytecode of the site, so that no child has to compile them.

    They import `doctest` later, when code of the repository could have changed it.
    """
    from _pytest.config import default_plugins  # pyright: ignore[reportMissingImports]

    for name in ("doctest", *(f"_pytest.{name}" for name in default_plugins)):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _list_trusted(job: dict[str, Any]) -> list[str]:
    """Returns the files that a run must not change: tests, configuration and installed packages."""
    files = [f"{job['repo']}/{path}" for path in job["trusted"]]
    for folder, _, names in os.walk(job["site"] or "/nonexistent"):
        files += [f"{folder}/{name}" for name in names]
    return files


def _read_mark(path: str) -> tuple[int, ...] | None:
    """Returns what no process can restore after a write: the time of the inode's last change."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _stop_child(pid: int, *, wait: bool) -> int:
    """Ends a child and its group; returns its status."""
    limit = time.monotonic() + (_GRACE_S if wait else 0.0)
    ended_pid, status = os.waitpid(pid, os.WNOHANG)
    while not ended_pid and time.monotonic() < limit:
        time.sleep(0.001)
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if ended_pid:
        return status
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _set_dumpable(value: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, value, 0, 0, 0)


def _encode_hex(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").hex() or "-"


def _decode_hex(word: str) -> str:
    return "" if word == "-" else bytes.fromhex(word).decode("utf-8", "replace")


if __name__ == "__main__":
    main()
