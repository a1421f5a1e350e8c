"""Audit hook of the process that runs pytest: reports what code of the repository inspects.

Its source is sent to the sandbox, next to `pytest_harness`, and runs with its own copy of Python's built-in functions.
It imports only the standard library. Python cannot remove an audit hook, nor reach it except by operations that it
reports before they happen. The hook calls no method of an object of the repository: that would run unobserved.

Reported kinds:

- `frames`: access to frames, tracebacks, `gc`, tracing, code objects, `ctypes` or native code;
- `reads`: opening a file of the hidden tests, by any name;
- `starts`: starting a process.
"""

from __future__ import annotations

import _posixsubprocess
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from types import FrameType, FunctionType
from typing import Any

_FRAMES = frozenset(
    ("sys._getframe", "sys._getframemodulename", "sys._current_frames", "sys._current_exceptions", "sys.settrace",
     "sys.setprofile", "sys.addaudithook", "sys.monitoring.register_callback", "gc.get_objects", "gc.get_referrers",
     "gc.get_referents", "code.__new__", "marshal.loads")
)  # fmt: skip
_STARTS = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn")
)
_FORK_EXEC = "verl_agentic.fork_exec"
_WATCHED = _FRAMES | _STARTS | {_FORK_EXEC, "open", "object.__getattr__", "object.__setattr__", "compile", "import"}
_FRAME_FIELDS = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
_CODE_FIELDS = frozenset({"__code__", "__defaults__", "__kwdefaults__"})
_LIBRARY = f"{os.path.dirname(os.__file__)}/"
# Modules of the standard library that look at frames for themselves: they do not give a frame to their caller.
_DISCREET = frozenset(
    f"{_LIBRARY}{name}.py" for name in ("collections/__init__", "dataclasses", "enum", "typing", "warnings")
)
_LOGGING, _INSPECT = f"{_LIBRARY}logging/__init__.py", f"{_LIBRARY}inspect.py"
_OPEN_MODULES = frozenset({_INSPECT, f"{_LIBRARY}dis.py"})
_PACKAGES = ("/site-packages/", "/dist-packages/")
_stat = os.stat


def install(report: Callable[[str, str, str], None], *, repo: str, site: str, tests: Collection[str]) -> None:
    """Adds the hook.

    Args:
        report: gets kind, `path:line` of the nearest code of the repository and the target, before the operation.
        repo: folder of the repository.
        site: folder of installed packages, or an empty text.
        tests: paths of the hidden tests and their data, below `repo`.
    """
    prefix, get_frame, get_ident = f"{repo}/", sys._getframe, threading.get_ident
    names = frozenset(os.path.basename(path) for path in tests)
    inodes = {inode: path for path in tests if (inode := _inode(prefix + path)) is not None}
    busy: set[int] = set()
    reported: set[tuple[str, str, str]] = set()
    main = get_ident()

    def is_package(name: str) -> bool:
        return any(part in name for part in _PACKAGES) or (site != "" and name.startswith(site))

    def find_place(frame: FrameType | None) -> str:
        """Returns the nearest code of the repository, or nothing if the runner or an installed package is nearer."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(prefix):
                return f"{name[len(prefix) :]}:{frame.f_lineno}"
            if is_package(name):
                return ""
            frame = frame.f_back
        return "" if get_ident() == main else "thread:0"

    def find_read(path: Any) -> str:
        """Returns the test file that a path names. Links have another name, and paths may begin at a descriptor."""
        if type(path) is not str:
            if type(path) is int:
                return ""
            if not issubclass(type(path), str):
                return "?"
            path = str.__str__(path)
        name = path.rpartition("/")[2]
        target = inodes.get(_inode(path) or (0, 0), "")
        return target or (name if name in names and not path.startswith("/") else "")

    def find_kind(event: str, args: tuple[Any, ...], frame: FrameType) -> tuple[str, str]:
        """Returns the kind and the target of an event; nothing if it is harmless."""
        caller = frame.f_code.co_filename
        above = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
        kind = "frames"
        if event == "open":
            kind, target = "reads", find_read(args[0])
        elif event in _STARTS or event == _FORK_EXEC:
            kind, target = "starts", event
        elif event == "marshal.loads":
            target = "" if caller.startswith("<frozen importlib") else event
        elif event in _FRAMES or event.startswith("ctypes."):
            is_harmless = caller in _DISCREET or (caller == _LOGGING and above.startswith(_LIBRARY))
            target = "" if is_harmless and event.startswith("sys._getframe") else event
        elif event == "compile":  # with the name of a trusted file
            name = args[1] if type(args[1]) is str else ""
            is_trusted = name.startswith(_LIBRARY) or is_package(name)
            is_own = type(args[0]) is bytes and is_trusted and args[0] == _read(name)
            target = event if is_trusted and not is_own else ""
        elif event == "import":  # of native code, which is in no installed package, or reads files unobserved
            path = args[1] if type(args[1]) is str else ""
            is_trusted = not path or path.startswith(_LIBRARY) or is_package(path)
            target = "" if is_trusted and args[0] != "readline" else event
        elif args[1] in _FRAME_FIELDS:
            is_inside = caller.startswith(_LIBRARY) and above.startswith(_LIBRARY) and caller not in _OPEN_MODULES
            target = "" if is_inside else args[1]
        elif args[1] in _CODE_FIELDS and type(args[0]) is FunctionType:
            owner = args[0].__code__.co_filename
            is_watched = is_package(owner) or (owner.startswith(prefix) and owner[len(prefix) :] in tests)
            target = args[1] if is_watched and caller not in (_INSPECT, *_DISCREET) else ""
        else:
            target = ""
        return (kind, target) if target else ("", "")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in _WATCHED and not event.startswith("ctypes."):
            return
        observe(event, args)
        if event == _FORK_EXEC:
            args[0].append(fork_exec(*args[0].pop()))

    def observe(event: str, args: tuple[Any, ...]) -> None:
        ident = get_ident()
        if ident in busy:
            return
        busy.add(ident)
        try:
            frame = get_frame(2)
            kind, target = find_kind(event, args, frame)
            place = find_place(frame) if kind else ""
            if place and (kind, place, target) not in reported:
                reported.add((kind, place, target))
                report(kind, place, target)
        finally:
            busy.discard(ident)

    fork_exec = _posixsubprocess.fork_exec
    _posixsubprocess.fork_exec = subprocess._fork_exec = _start_process  # pyright: ignore[reportAttributeAccessIssue]
    sys.addaudithook(hook)


def _start_process(*args: Any) -> Any:
    """Replaces a function that raises no event. Only the hook has the original: a closure would show it."""
    box: list[Any] = [args]
    sys.audit(_FORK_EXEC, box)
    return box[0]


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = _stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
