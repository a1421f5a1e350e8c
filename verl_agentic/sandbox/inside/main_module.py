"""Runs source as `python main.py` does: in a real module `__main__`, with tracebacks that show no frames of our own.

Standard library only, and nothing of this package: the backend `local` uses it on every system.
"""

from __future__ import annotations

import _sitebuiltins
import ast
import atexit
import builtins
import contextlib
import io
import itertools
import linecache
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any

FILE = "main.py"


def prepare() -> None:
    """Prepares this interpreter for programs: streams on the descriptors 0 to 2, `exit`, integers of any length."""
    sys.argv = [FILE]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, buffering = "w" if number else "r", 1 if number == 2 else -1
        stream = open(number, mode, buffering, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for name in ("exit", "quit"):  # `site`, which a sandbox skips, adds them
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    if hasattr(sys, "set_int_max_str_digits"):  # not in old images
        sys.set_int_max_str_digits(0)
    traceback.walk_stack = _walk_program_stack


def new_main_module() -> ModuleType:
    """Makes an empty module and installs it as `__main__`."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__.update(__annotations__={}, __builtins__=builtins, __cached__=None)
    return module


def run_source(source: str, module: ModuleType, *, file: str = FILE, shows_value: bool = False) -> int:
    """Runs source in the main module, prints an exception as Python does, and returns the exit code.

    Args:
        source: the program.
        module: see `new_main_module`.
        file: name of the source in tracebacks.
        shows_value: print the value of a last expression, as a notebook does.
    """
    lines = io.StringIO(source.removesuffix("\n") + "\n", newline=None).readlines()
    linecache.cache[file] = len(source), None, lines, file  # for tracebacks, warnings, doctest and inspect
    module.__file__ = file
    with contextlib.suppress(BaseException):  # of what the program has put in place of a hook, a stream or an exit code
        try:
            for code in _compile_parts(source, file, lines, shows_value=shows_value):
                exec(code, module.__dict__)
            return 0
        except SystemExit as end:
            return _read_exit_code(end)
        except BaseException:
            print_error()
    return 1


def print_error() -> None:
    """Prints the current exception without our own frames."""
    error: Any = sys.exc_info()[1]
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    error.__traceback__ = trace
    # Python's own hook reads the lines of frames from files only.
    is_own = sys.excepthook is sys.__excepthook__ and trace is not None
    (traceback.print_exception if is_own else sys.excepthook)(type(error), error, trace)


def finish(code: int) -> int:
    """Shuts down like an interpreter: joins threads, runs `atexit`, flushes."""
    threading = sys.modules.get("threading")  # importing it would take longer than most programs
    try:
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        code = code or 1
    return code if flush() else code or 1


def flush() -> bool:
    """Flushes the streams, also those that the program has replaced; returns False if it cannot."""
    try:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
    except BaseException:
        return False
    return True


def _compile_parts(source: str, file: str, lines: list[str], *, shows_value: bool) -> Iterator[Any]:
    """Yields the compiled source; where the value of a last expression is shown, that expression apart."""
    try:
        if not shows_value:
            yield compile(source, file, "exec", dont_inherit=True)
            return
        tree: Any = compile(source, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        last = tree.body[-1:] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        del tree.body[len(tree.body) - len(last) :]
        parts = [compile(tree, file, "exec", dont_inherit=True)]
        parts += [compile(ast.Interactive(last), file, "single", dont_inherit=True)] if last else []
    except SyntaxError as error:
        number = error.lineno or 0
        if error.text is None and error.filename == file and 0 < number <= len(lines):
            error.text = lines[number - 1]  # which Python reads from a file
        raise
    yield from parts


def _read_exit_code(end: SystemExit) -> int:
    """Returns the exit code of a program that ends so; prints a text as Python does."""
    code: Any = end.code
    if code is None:
        return 0
    if issubclass(type(code), int):
        return int.__and__(code, 255)  # not the operator, which a subclass may define
    print(code, file=sys.stderr)
    return 1


def _is_ours(frame: Any) -> bool:
    return frame.f_code.co_filename == prepare.__code__.co_filename


def _walk_program_stack(frame: Any, *, walk: Any = traceback.walk_stack) -> Iterator[Any]:
    """Yields the frames of the program; what lies below them is ours."""
    start = sys._getframe(1) if frame is None else frame
    return itertools.takewhile(lambda pair: not _is_ours(pair[0]), walk(start))
