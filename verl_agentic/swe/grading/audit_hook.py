"""Audit hook of the process that runs pytest: reports what code of the repository inspects.

Its source is sent to the sandbox, next to `pytest_harness`, and runs with its own copy of Python's built-in functions.
It imports only the standard library. Python cannot remove an audit hook, nor reach it except by operations that it
reports before they happen. While it works, it does not see events, so it calls no method of an object of the
repository: arguments are compared only if their type is exactly the expected one.

Reported kinds:

- `frames`: access to frames, tracebacks, `gc`, tracing, code objects, `ctypes`, signal handlers or native code;
- `reads`: opening a file of the hidden tests, by any name, or using a test module that was imported;
- `starts`: starting a process, or sending a signal.
"""

from __future__ import annotations

import _posixsubprocess
import _signal  # pyright: ignore[reportMissingImports]
import contextlib
import importlib
import linecache
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

_FORK_EXEC, _SIGNAL, _MODULE = "verl_agentic.fork_exec", "verl_agentic.signal", "verl_agentic.module"
_FRAMES = frozenset(
    ("sys._getframe", "sys._getframemodulename", "sys._current_frames", "sys._current_exceptions", "sys.settrace",
     "sys.setprofile", "sys.addaudithook", "sys.monitoring.register_callback", "gc.get_objects", "gc.get_referrers",
     "gc.get_referents", "code.__new__", "marshal.loads", "cpython.PyInterpreterState_New", _SIGNAL)
)  # fmt: skip
_STARTS = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn",
     "os.kill", "os.killpg", _FORK_EXEC)
)  # fmt: skip
_WATCHED = _FRAMES | _STARTS | {_MODULE, "open", "object.__getattr__", "object.__setattr__", "compile", "import"}
_FRAME_FIELDS = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
_CODE_FIELDS = frozenset({"__code__", "__defaults__", "__kwdefaults__"})
# They read files, or run code, without an event.
_UNOBSERVED = frozenset({"readline", "_xxsubinterpreters", "_interpreters"})
_HIDE = "verl_agentic.hide"
# Imports, and code that walks over all modules, read them.
_OF_IMPORT = frozenset(
    {"__class__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)
_LIBRARY = f"{os.path.dirname(os.__file__)}/"
_PACKAGES = ("/site-packages/", "/dist-packages/")
_RUNNER = ("/_pytest/", "/pytest/", "/pluggy/")
# Modules of the standard library with functions that look at the frame of their caller, and do not pass it on.
_DISCREET = ("collections", "dataclasses", "enum", "typing", "warnings")
_stat = os.stat


def install(
    report: Callable[[str, str, str], None], *, repo: str, site: str, tests: Collection[str], harness: str
) -> None:
    """Adds the hook. It hides test modules when their code is run, and when it gets the event `verl_agentic.hide`.

    A hidden module stands in `sys.modules`, and in its package, as a module without contents that raises an event when
    it is used, and then does it with the real one. Only the hook has that.

    Args:
        report: gets kind, `path:line` of the nearest code of the repository and the target, before the operation.
        repo: folder of the repository.
        site: folder of installed packages, or an empty text.
        tests: paths of the hidden tests and their data, below `repo`.
        harness: file of the code that calls pytest.
    """
    prefix, get_frame, get_ident = f"{repo}/", sys._getframe, threading.get_ident
    names = frozenset(os.path.basename(path) for path in tests)
    inodes = {inode: path for path in tests if (inode := _read_inode(prefix + path)) is not None}
    linecache.cache.update({prefix + path: (0, None, [], prefix + path) for path in tests})  # never read, never stale
    discreet = _codes_with("_getframe", "_getframemodulename", modules=_DISCREET)
    in_traceback, reads_code = _codes_with(modules=("traceback",)), _codes_with("__code__", modules=("inspect",))
    caller_of_log, internal = logging.Logger.findCaller.__code__, getattr(logging, "_is_internal_frame", None)
    print_stack = traceback.print_stack
    functions = (_start_process, _set_handler, *(value for value in vars(_HiddenModule).values() if callable(value)))
    # The code is kept, so that no other code has the id.
    own_codes = {id(function.__code__): function.__code__ for function in functions}
    real: dict[int, tuple[ModuleType, ModuleType]] = {}
    busy: set[int] = set()
    reported: set[tuple[str, str, str]] = set()
    main = get_ident()

    def is_package(name: str) -> bool:
        return any(part in name for part in _PACKAGES) or (site != "" and name.startswith(site))

    def is_library(name: str) -> bool:
        return name.startswith(("<frozen ", _LIBRARY)) and not is_package(name)

    def is_of_tests(name: str) -> bool:
        return name.startswith(prefix) and name[len(prefix) :] in tests

    def find_place(frame: FrameType | None) -> str:
        """Returns the nearest code that is of the repository or made by code; nothing if a package is nearer."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name == harness:
                return ""
            if name.startswith(prefix):
                return f"{name[len(prefix) :]}:{frame.f_lineno}"
            if is_package(name):
                if not any(part in name for part in _RUNNER):
                    return ""
            elif not is_library(name):
                return f"<made>:{frame.f_lineno}"
            frame = frame.f_back
        return "" if get_ident() == main else "thread:0"

    def find_read(path: Any) -> str:
        """Returns the test file that a path names. Links have another name, and paths may begin at a descriptor."""
        if type(path) is bytes:
            path = path.decode("utf-8", "surrogateescape")
        if type(path) is not str:
            if type(path) is int:
                return ""
            if not issubclass(type(path), str):
                return "?"
            path = str.__str__(path)
        target = inodes.get(_read_inode(path) or (0, 0), "")
        name = path.rpartition("/")[2]
        return target or (name if name in names and not path.startswith("/") else "")

    def is_log(frame: FrameType) -> bool:
        """Returns whether logging, with its own functions, looks for the caller of a message."""
        scope = frame.f_globals
        is_own = scope.get("_is_internal_frame") is internal and scope.get("traceback") is traceback
        return frame.f_code is caller_of_log and is_own and traceback.print_stack is print_stack

    def find_kind(event: str, args: tuple[Any, ...], frame: FrameType) -> tuple[str, str]:
        """Returns the kind and the target of an event; nothing if it is harmless."""
        caller, above, kind, target = frame.f_code, frame.f_back, "frames", event
        if event == "open":
            kind, target = "reads", find_read(args[0])
        elif event in _STARTS:
            kind = "starts"
        elif event == _MODULE:
            _, operation, name = args[0][0][:3]
            kind, target = "reads", "" if operation == "get" and name in _OF_IMPORT else str(name)
        elif event == "marshal.loads":
            target = "" if caller.co_filename.startswith("<frozen importlib") else event
        elif event == "code.__new__":
            target = "" if caller.co_filename == f"{_LIBRARY}types.py" else event
        elif event == _SIGNAL:
            is_asyncio = above is not None and above.f_code.co_filename.startswith(f"{_LIBRARY}asyncio/")
            target = "" if is_asyncio else event
        elif event.startswith("sys._getframe"):
            target = "" if id(caller) in discreet or (above is not None and is_log(above)) else event
        elif event == "compile":  # with the name of a file whose content it is not
            name = args[1] if type(args[1]) is str else ""
            is_file = name.startswith(prefix) or is_library(name) or is_package(name)
            is_own = type(args[0]) is bytes and args[0] == _read_file(name)
            target = event if is_file and not is_own and not is_package(caller.co_filename) else ""
        elif event == "import":  # of native code that is in no installed package
            path = args[1] if type(args[1]) is str else ""
            is_unobserved = type(args[0]) is str and args[0] in _UNOBSERVED
            target = event if is_unobserved or not (not path or is_library(path) or is_package(path)) else ""
        elif event in ("object.__getattr__", "object.__setattr__"):
            target = args[1] if type(args[1]) is str else ""
            if target in _FRAME_FIELDS:
                callers = [caller, above.f_code] if above is not None else [caller]
                is_inside = all(id(code) in in_traceback for code in callers)
                is_asyncio = all(code.co_filename.startswith(f"{_LIBRARY}asyncio/") for code in callers)
                target = "" if is_inside or (is_asyncio and target == "cr_frame") else target
            elif target in _CODE_FIELDS and type(args[0]) is FunctionType:
                owner = args[0].__code__.co_filename
                target = target if (is_package(owner) or is_of_tests(owner)) and id(caller) not in reads_code else ""
            else:
                target = ""
        return (kind, target) if target else ("", "")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if type(event) is not str:
            return
        if event == _HIDE or (event == "exec" and type(args[0]) is CodeType and is_of_tests(args[0].co_filename)):
            hide()
        if event not in _WATCHED and not event.startswith("ctypes."):
            return
        observe(event, args)
        if event in originals and type(args[0]) is list:
            args[0].append(originals[event](*args[0].pop()))

    def observe(event: str, args: tuple[Any, ...]) -> None:
        ident = get_ident()
        if ident in busy:
            return
        busy.add(ident)
        try:
            frame = get_frame(2)
            if id(frame.f_code) in own_codes and frame.f_back is not None:
                frame = frame.f_back
            kind, target = find_kind(event, args, frame)
            place = find_place(frame) if kind else ""
            if place and (kind, place, target) not in reported:
                report(kind, place, target)
                reported.add((kind, place, target))
            elif kind == "reads" and not place and frame.f_code.co_filename == f"{_LIBRARY}tokenize.py":
                raise OSError("the source of a test is not shown")  # in messages of pytest, which code could find
        finally:
            busy.discard(ident)

    def use(hidden: ModuleType, operation: str, *arguments: Any) -> Any:
        return operations[operation](real[id(hidden)][1], *arguments)

    def hide() -> None:
        for name, module in list(sys.modules.items()):
            path = vars(module).get("__file__") if type(module) is ModuleType else None
            if type(path) is str and is_of_tests(path):
                sys.modules[name] = hidden = _HiddenModule(name)
                real[id(hidden)] = hidden, module
        for hidden, module in real.values():
            package, _, last = vars(module)["__name__"].rpartition(".")
            space = vars(sys.modules[package]) if type(sys.modules.get(package)) is ModuleType else {}
            if space.get(last) is module:
                space[last] = hidden

    operations: dict[str, Callable[..., Any]] = {"get": getattr, "set": setattr, "delete": delattr}
    originals: dict[str, Callable[..., Any]] = {
        _FORK_EXEC: _posixsubprocess.fork_exec,
        _SIGNAL: _signal.signal,
        _MODULE: use,
    }
    start_process, set_handler = _set_apart(_start_process), _set_apart(_set_handler)
    _posixsubprocess.fork_exec = subprocess._fork_exec = start_process  # pyright: ignore[reportAttributeAccessIssue]
    _signal.signal = set_handler  # pyright: ignore[reportAttributeAccessIssue]
    for name, value in list(vars(_HiddenModule).items()):
        if type(value) is FunctionType:
            setattr(_HiddenModule, name, _set_apart(value))
    with contextlib.suppress(ImportError):  # pytest imports it, too: an import by the repository would not be seen
        readline = importlib.import_module("readline")
        for name in ("read_history_file", "read_init_file"):
            delattr(readline, name)
    sys.addaudithook(hook)


class _HiddenModule(ModuleType):
    def __getattribute__(self, name: str) -> Any:
        box: list[Any] = [(self, "get", name)]
        sys.audit(_MODULE, box)
        return box[0]

    def __setattr__(self, name: str, value: Any) -> None:
        sys.audit(_MODULE, [(self, "set", name, value)])

    def __delattr__(self, name: str) -> None:
        sys.audit(_MODULE, [(self, "delete", name)])


# They replace functions that raise no event. Only the hook has the originals: a closure would show them.


def _start_process(*args: Any) -> Any:
    box: list[Any] = [args]
    sys.audit(_FORK_EXEC, box)
    return box[0]


def _set_handler(*args: Any) -> Any:
    box: list[Any] = [args]
    sys.audit(_SIGNAL, box)
    return box[0]


def _set_apart(function: FunctionType) -> FunctionType:
    """Returns a copy of a function whose globals are those that it uses.

    Code of the repository gets hold of the function, and may read `__globals__` without an event. With the globals of
    this module it could switch the hook off.
    """
    names = {name: globals()[name] for name in function.__code__.co_names if name in globals()}
    return FunctionType(function.__code__, {"__builtins__": {}, **names}, function.__name__)


def _codes_with(*words: str, modules: Collection[str]) -> frozenset[int]:
    """Returns the identities of the code of functions in modules that use one of these names; without names, of all."""
    codes: list[CodeType] = []
    for name in modules:
        module = importlib.import_module(name)
        for value in list(vars(module).values()):
            codes += _iter_codes(value, module)
    return frozenset(id(code) for code in codes if not words or any(word in code.co_names for word in words))


def _iter_codes(value: Any, module: ModuleType) -> Iterator[CodeType]:
    value = getattr(value, "__func__", value)
    if isinstance(value, CodeType):
        yield value
        for inner in value.co_consts:
            yield from _iter_codes(inner, module)
    elif isinstance(value, FunctionType) and value.__globals__ is vars(module):
        yield from _iter_codes(value.__code__, module)
    elif isinstance(value, type) and value.__module__ == module.__name__:
        for member in vars(value).values():
            if not isinstance(member, type):
                yield from _iter_codes(member, module)


def _read_inode(path: str) -> tuple[int, int] | None:
    try:
        status = _stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
