"""Runs source as `python main.py` does: in a real module `__main__`, with tracebacks that show no frames of our own.

Standard library only, and nothing of this package: the backend `local` uses it on every system.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import ast
import atexit
import builtins
import contextlib
import gc
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
    """Prepares this interpreter for programs: streams on the descriptors 0 to 2, hooks, integers of any length."""
    sys.argv = [FILE]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, buffering = "w" if number else "r", 1 if number == 2 else -1
        errors = "backslashreplace" if number == 2 else "strict"
        stream: Any = open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        stream.buffer.raw.name = f"<{name}>"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for name in ("exit", "quit"):  # `site`, which a sandbox skips, adds them
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    setattr(builtins, "help", _sitebuiltins._Helper())  # noqa: B010
    if hasattr(sys, "set_int_max_str_digits"):  # not in old images
        sys.set_int_max_str_digits(0)
    traceback.walk_stack = _walk_program_stack
    hooks: dict[str, Any] = {"excepthook": show_error, "unraisablehook": _show_ignored}
    for name, hook in hooks.items():
        setattr(sys, name, hook)
        setattr(sys, f"__{name}__", hook)
    _thread._excepthook = _show_thread_error  # type: ignore[attr-defined]  # which `threading` takes when imported
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading.excepthook = threading.__excepthook__ = _show_thread_error


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
    error = None
    with contextlib.suppress(BaseException):  # of what the program has put in place of a hook, a stream or an exit code
        try:
            for code in _compile_parts(source, file, lines, shows_value=shows_value):
                exec(code, module.__dict__)
            return 0
        except SystemExit as end:
            return _read_exit_code(end)
        except BaseException as cause:
            error = cause
        print_error(error)
    return 1


def print_error(error: BaseException) -> None:
    """Prints an exception without our own frames; and one of the program's hook as well."""
    _remove_our_frames(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception as cause:
        failure = cause
    else:
        return
    _remove_our_frames(failure)
    _write_stderr("Error in sys.excepthook:\n")
    show_error(type(failure), failure, failure.__traceback__)
    _write_stderr("\nOriginal exception was:\n")
    show_error(type(error), error, error.__traceback__)


def show_error(kind: Any, error: Any, trace: Any, *, chain: bool = True, native_hook: Any = sys.excepthook) -> None:
    """Prints an exception as Python's hook does. That hook reads the lines of frames from files only."""
    if trace is None:
        native_hook(kind, error, trace)
        return
    lines = traceback.format_exception(kind, error, trace, chain=chain)
    if isinstance(error, NameError | AttributeError):  # to which some versions only add a suggestion in C
        with contextlib.redirect_stderr(io.StringIO()) as text:
            native_hook(kind, error, trace)
        last = text.getvalue().splitlines(keepends=True)[-1:]
        lines[-1:] = last if last and last[0].startswith(lines[-1].rstrip("\n")) else lines[-1:]
    _write_stderr("".join(lines))


def finish(code: int) -> int:
    """Shuts down like an interpreter: joins threads, runs `atexit`, flushes."""
    threading = sys.modules.get("threading")  # importing it would take longer than most programs
    try:
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        sys.modules.pop("__main__", None)
        gc.collect()  # calls `__del__` of what is left
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
    if issubclass(type(code), int):  # not the operators, which a subclass may define
        return int.__and__(code, 255) if int.bit_length(code) < 64 else 255
    _write_stderr(f"{code}\n")
    return 1


def _show_thread_error(failure: Any) -> None:
    if failure.exc_type is not SystemExit:
        name = _thread.get_ident() if failure.thread is None else failure.thread.name
        _write_stderr(f"Exception in thread {name}:\n")
        show_error(failure.exc_type, failure.exc_value, failure.exc_traceback)


def _show_ignored(failure: Any) -> None:
    place = "" if failure.object is None else f" {failure.object!r}"
    _write_stderr(f"{failure.err_msg or 'Exception ignored in'}:{place}\n")
    show_error(failure.exc_type, failure.exc_value, failure.exc_traceback, chain=False)


def _write_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


def _remove_our_frames(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    error.__traceback__ = trace


def _is_ours(frame: Any) -> bool:
    return frame.f_code.co_filename == prepare.__code__.co_filename


def _walk_program_stack(frame: Any, *, walk: Any = traceback.walk_stack) -> Iterator[Any]:
    """Yields the frames of the program; what lies below them is ours."""
    start = sys._getframe(1) if frame is None else frame
    return itertools.takewhile(lambda pair: not _is_ours(pair[0]), walk(start))
