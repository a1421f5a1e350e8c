"""Runs a program on the inputs of tests, inside a sandbox, as `python solution.py < input` would.

It does not know the expected outputs. Standard library only.

Working folder: `solution.py` (or another language's source), `.tests/settings.json` and `.tests/in.N` in;
`.tests/out.N` and `results.json` out. Each test is a process forked from this one, which has compiled the program once.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import contextlib
import gc
import io
import json
import os
import resource
import select
import shutil
import subprocess
import sys
import time

# `_signal` instead of `signal`, whose functions return enums.
from _signal import SIG_IGN, SIGINT, SIGKILL, SIGPIPE, SIGXCPU, SIGXFSZ, default_int_handler, signal  # pyright: ignore[reportMissingImports]
from _weakref import ref
from collections import deque
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

_FOLDER = ".tests"
_SOURCE = "solution.py"
_ERROR_BYTES = 4096
_RECURSION = 1000
"""Python's default limit, counted from the program's first frame."""

# Names that datasets of contest problems expect without imports; used if a rubric asks for it.
_PRELUDE = """
from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from statistics import *
from itertools import *
from functools import *
from operator import *
from json import *
from typing import *
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string, sys
"""


def main() -> None:
    """Runs all tests and writes the results."""
    with open(f"{_FOLDER}/settings.json", encoding="utf-8") as file:
        settings = json.load(file)
    compiled, problem = _compile_program(settings)
    results: list[dict[str, Any]] = []
    if problem is not None:
        results = [problem] * settings["count"]
    else:
        print("started", flush=True)  # a later failure of the harness is the program's fault
        _prepare_interpreter(settings)
        deadline = time.monotonic() + settings["total_s"]
        while len(results) < settings["count"] and time.monotonic() < deadline:
            index = len(results)
            pid = _fork_group()
            if pid == 0:
                _run_test(index, compiled, settings)
            results.append(_await_result(pid, index, min(time.monotonic() + settings["test_s"], deadline)))
            if settings["stop_at_failure"] and results[-1]["status"] != "ran":
                break
    results += [{"status": "not_run"}] * (settings["count"] - len(results))
    with open("results.json", "w", encoding="utf-8") as file:
        json.dump(results, file)


def _compile_program(settings: dict[str, Any]) -> tuple[Any, dict[str, str] | None]:
    """Returns the compiled program (None for other languages), and the compile error, if any."""
    program = settings["compile"] or settings["run"]
    if not program:
        with open(_SOURCE, encoding="utf-8") as file:
            source = file.read()
        try:
            return compile(source, _SOURCE, "exec", dont_inherit=True), None
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
            # The compiler raises the last three for source that is too long or nested too deep.
            return None, {"status": "compile_error", "output": str(error)[:500] or type(error).__name__}
    if not shutil.which(program[0]):
        return None, {"status": "missing", "output": program[0]}
    if settings["compile"]:
        print("started", flush=True)
        process = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if process.returncode:
            return None, {"status": "compile_error", "output": process.stdout.decode("utf-8", "replace")[:500]}
    return None, None


def _prepare_interpreter(settings: dict[str, Any]) -> None:
    """Prepares once what all tests share."""
    # Added by `site`, which a sandbox may skip.
    for name in ("exit", "quit"):
        if not hasattr(builtins, name):
            setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    # Programs expect a Python without this limit, and libraries that start no threads.
    sys.set_int_max_str_digits(0)
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if settings["prelude"]:
        names: dict[str, Any] = {}
        exec(_PRELUDE, names)
        for name, value in names.items():
            if not hasattr(builtins, name):  # `pow` of `math` and `operator` must not shadow Python's own
                setattr(builtins, name, value)
    gc.collect()
    gc.freeze()  # so that the last collection of each test covers only objects of the test


def _fork_group() -> int:
    """Forks into a new process group; returns -1 if no process can be created."""
    try:
        pid = os.fork()
    except OSError:  # remains of an earlier test use up all processes
        return -1
    if pid == 0:
        os.setsid()
    return pid


def _await_result(pid: int, index: int, end: float) -> dict[str, Any]:
    """Waits for the process of a test until `end`, kills it, and returns its result."""
    if pid < 0:
        return {"status": "error", "output": "no process could be started"}
    handle = os.pidfd_open(pid)
    is_late = not select.select([handle], [], [], max(0.0, end - time.monotonic()))[0]
    os.close(handle)
    for kill in (os.killpg, os.kill):  # the group may not exist yet
        with contextlib.suppress(OSError):
            kill(pid, SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if is_late or code == -SIGXCPU:
        return {"status": "timeout"}
    return {"status": "error", "output": _end_of(f"{_FOLDER}/err.{index}")} if code else {"status": "ran"}


def _end_of(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # it may be a pipe
            file.seek(max(0, file.seek(0, os.SEEK_END) - _ERROR_BYTES))
            return file.read(_ERROR_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _run_test(index: int, compiled: Any, settings: dict[str, Any]) -> None:
    """Runs test `index` in this freshly forked process; never returns."""
    code = 1
    try:
        size = settings["output_bytes"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        _open_streams(index, is_function=bool(settings["fn_name"]))
        if settings["run"]:
            os.execvp(settings["run"][0], settings["run"])
        # As in Python: a write that is too long or has no reader raises in the program.
        for number in (SIGPIPE, SIGXFSZ):
            signal(number, SIG_IGN)
        signal(SIGINT, default_int_handler)
        _count_recursion_from_here()
        code = _call_function(compiled, settings["fn_name"], index) if settings["fn_name"] else _run_program(compiled)
    finally:
        os._exit(code & 255)


def _open_streams(index: int, *, is_function: bool) -> None:
    """Redirects the streams to files, as by `< in > out 2> err`; for a function, input and output are /dev/null."""
    error = f"{_FOLDER}/err.{index}"
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, (path, flags) in enumerate(
        (
            ("/dev/null" if is_function else f"{_FOLDER}/in.{index}", os.O_RDONLY),
            ("/dev/null" if is_function else f"{_FOLDER}/out.{index}", new),
            (error, new | os.O_APPEND),
        )
    ):
        descriptor = os.open(path, flags, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.closerange(3, 65_536)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _make_stream(number, name)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _make_stream(number: int, name: str) -> io.TextIOWrapper:
    """Returns a standard stream as Python makes it for a UTF-8 locale."""
    raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
    raw.raw.name = f"<{name}>"  # type: ignore[misc]
    stream = io.TextIOWrapper(
        raw,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "surrogateescape",
        newline="\n",
        line_buffering=number == 2,
    )
    stream.mode = "w" if number else "r"  # type: ignore[misc]
    return stream


_MAX_INT = 2**31 - 1  # of a C int; a larger limit raises OverflowError as it does outside


def _count_recursion_from_here() -> None:
    """Excludes the frames below the program from the recursion limit."""
    change, limit = sys.setrecursionlimit, sys.getrecursionlimit
    frame, below = sys._getframe(), 1
    while frame is not None:
        below += 2 if frame.f_code.co_name == "<module>" else 1  # the call of `exec` counts as a frame
        frame = frame.f_back

    def setrecursionlimit(limit: int, /) -> None:
        change(min(limit + below, max(limit, _MAX_INT)) if limit > 0 else limit)

    sys.setrecursionlimit = setrecursionlimit
    sys.getrecursionlimit = lambda: limit() - below
    setrecursionlimit(_RECURSION)


def _make_module(name: str, compiled: Any) -> Any:
    module = type(sys)(name)
    module.__dict__.update(__file__=os.path.abspath(_SOURCE), __builtins__=builtins, __cached__=None)
    sys.modules[name] = module
    sys.argv[:] = [_SOURCE]
    return module


def _run_program(compiled: Any) -> int:
    """Runs the program as the main module and returns its exit code."""
    code = _execute_main(compiled)  # its frame, which holds the module, must end first
    return _end_interpreter() or code


def _execute_main(compiled: Any) -> int:
    main_module = _make_module("__main__", compiled)
    try:
        exec(compiled, main_module.__dict__)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        with contextlib.suppress(BaseException):
            sys.excepthook(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        return 1
    return 0


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0)
    print(code, file=sys.stderr)
    return 1


def _end_interpreter() -> int:
    """Shuts down as Python does: joins threads, runs `atexit`, flushes, deletes objects. Returns the exit code."""
    threading = sys.modules.get("threading")
    if threading is not None:
        try:
            threading._shutdown()
        except BaseException as error:
            _print_ignored(error)
    atexit._run_exitfuncs()
    code = _flush_streams()
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    _delete_objects(sys.modules.pop("__main__", None))
    _flush_streams()
    return code


def _flush_streams() -> int:
    """Flushes the standard streams; returns 120 on failure, as Python does, else 0."""
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException as error:
            _print_ignored(error)
            code = 120
    return code


def _delete_objects(main_module: Any) -> None:
    """Deletes the objects of the program as Python does. `__del__` may use all names of the program, unless something
    else holds the module; then its names are set to None one by one.
    """
    module = ref(main_module) if isinstance(main_module, type(sys)) else lambda: None
    del main_module
    gc.collect()
    names = getattr(module(), "__dict__", {})
    for is_private in (True, False):
        for name in list(names):
            if name != "__builtins__" and is_private == (name[:1] == "_" and name[1:2] != "_"):
                names[name] = None
    gc.collect()


def _print_ignored(error: BaseException) -> None:
    """Prints an exception without raising it."""
    with contextlib.suppress(BaseException):
        print(f"Exception ignored: {type(error).__name__}: {error}", file=sys.__stderr__)


def _call_function(compiled: Any, fn_name: str, index: int) -> int:
    """Calls the function or method of `Solution` with a JSON value per line; writes JSON and returns the exit code."""
    dumps, set_digits = json.dumps, sys.set_int_max_str_digits
    with open(f"{_FOLDER}/in.{index}", encoding="utf-8") as file:
        arguments = [json.loads(line) for line in file.read().split("\n") if line.strip()]
    try:
        names = _make_module(_SOURCE.removesuffix(".py"), compiled).__dict__
        exec(compiled, names)
        result = _get_function(names, fn_name)(*arguments)
        set_digits(0)  # allows results of any length
        text = dumps(result, default=_to_plain_json)
    except BaseException as error:
        while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename != _SOURCE:
            error.__traceback__ = error.__traceback__.tb_next
        sys.__excepthook__(type(error), error, error.__traceback__)
        return 1
    with open(f"{_FOLDER}/out.{index}", "w", encoding="utf-8") as file:
        file.write(text)
    return 0


def _get_function(names: dict[str, Any], fn_name: str) -> Any:
    owner = names.get("Solution")
    return getattr(owner(), fn_name) if owner and hasattr(owner, fn_name) else names[fn_name]


def _to_plain_json(value: Any) -> Any:
    """Returns iterators, ranges, dictionary views and arrays as lists, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (Iterator, range, deque, KeysView, ValuesView, ItemsView)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


if __name__ == "__main__":
    main()
