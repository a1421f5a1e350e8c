"""The first errors of every process of a run, stored in the run's folder, and printed by the driver when a run fails.

A process stores logs of level ERROR, uncaught exceptions of threads, and failures of its Ray tasks. Each kind
(exception and last line of code) is stored once, with a count. Without a folder, the driver prints only the exception
that ended it, without Ray's wrappers.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf, open_dict

from verl_agentic.log.secrets import Secrets
from verl_agentic.observe.live.root_causes import ErrorRecord, failure_report, is_sent, read_errors, root_of
from verl_agentic.verl.import_hooks import when_imported
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.run_dir import KEY, VARIABLE, run_dir_of

_MAX_KINDS = 20
"""Maximum number of kinds of errors per process."""
_EXACT = 16
"""Counts up to this are written at once, larger ones when they double, because Ray's workers end without `atexit`."""
_MAX_CHARS = 20_000
"""Maximum length of a traceback."""
_DRAIN_S = 0.5
"""Ray prints its workers' output with a delay."""


class FirstErrors:
    """The errors of one process; rewritten as counts grow."""

    def __init__(self, folder: Path) -> None:
        """Writes nothing yet."""
        self._folder = folder
        self._lock = threading.RLock()
        self._secrets = Secrets()
        self.begin()

    def begin(self) -> None:
        """Starts with no errors, in a file of this process."""
        self._path = self._folder / f"errors-{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}.jsonl"
        self._records: dict[tuple[str, str], dict[str, Any]] = {}
        self._pid = os.getpid()

    def add(self, kind: str, message: str, *, trace: str, origin: str) -> None:
        """Stores an error; never raises.

        Args:
            kind: type of the exception, or of the log record.
            trace: its traceback; may be empty.
            origin: its last line of code, which identifies it.
        """
        if os.getpid() != self._pid:
            return  # a fork: its parent's file is not its own
        with self._lock, contextlib.suppress(Exception):
            record = self._records.get((kind, origin))
            if record is not None:
                record["count"] += 1
                if record["count"] <= _EXACT or record["count"] & (record["count"] - 1) == 0:
                    self.write()
                return
            if len(self._records) < _MAX_KINDS:
                process = _name_process()
                match = re.match(r"ray::(?:IDLE$)?([\w.<>]*)", process)
                # Secrets are removed before the text is cut, because half a secret would not be recognised.
                self._records[kind, origin] = {
                    "time": time.time(),
                    "process": f"{process} (pid {os.getpid()} on {socket.gethostname()})",
                    "actor": match.group(1).split(".")[0] if match else "",
                    "type": kind,
                    "message": self._secrets.removed(message)[:_MAX_CHARS],
                    "traceback": self._secrets.removed(trace)[-_MAX_CHARS:],
                    "where": origin,
                    "count": 1,
                }
                self.write()

    def add_exception(self, error: BaseException, *, trace: TracebackType | None = None) -> None:
        """Stores an exception without Ray's wrappers."""
        root = root_of(error)
        lines = root.traceback or "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
        self.add(root.type, root.message, trace=lines, origin=root.where)

    def write(self) -> None:
        """Writes all stored errors."""
        with self._lock, contextlib.suppress(OSError):  # a full disk is no reason to end a run
            if not self._records:
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._path.with_suffix(".tmp")
            scratch.write_text("".join(json.dumps(record) + "\n" for record in self._records.values()))
            scratch.replace(self._path)


def _name_process() -> str:
    """Returns the name of this process; Ray names workers after their actor or task, one process its threads."""
    if threading.current_thread().name.startswith("ray::"):
        return threading.current_thread().name
    with contextlib.suppress(OSError):
        title = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
        if title.startswith("ray::"):
            return title
    return f"{Path(sys.argv[0]).name or 'python'}"


_first_errors: FirstErrors | None = None


def install(folder: Path) -> FirstErrors:
    """Makes this process store its first errors in a folder; a second call does nothing."""
    global _first_errors
    if _first_errors is not None:
        return _first_errors
    _first_errors = errors = FirstErrors(folder)
    # A handler would miss loggers that do not propagate, such as verl's, and would disable `basicConfig`.
    logging.setLogRecordFactory(_make_record_factory(logging.getLogRecordFactory(), errors))
    sys.excepthook = _make_excepthook(sys.excepthook, errors)
    threading.excepthook = _make_thread_excepthook(threading.excepthook, errors)
    when_imported("ray.exceptions", functools.partial(_watch_tasks, errors))
    atexit.register(errors.write)
    return errors


def begin_worker() -> None:
    """Keeps the errors of a worker that was forked after this module was imported."""
    if _first_errors is not None:
        _first_errors.begin()


def _make_record_factory(
    original: Callable[..., logging.LogRecord], errors: FirstErrors
) -> Callable[..., logging.LogRecord]:
    inside = threading.local()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = original(*args, **kwargs)
        if record.levelno >= logging.ERROR and not getattr(inside, "now", False):
            inside.now = True
            try:
                _add_record(errors, record)
            finally:
                inside.now = False
        return record

    return make


def _add_record(errors: FirstErrors, record: logging.LogRecord) -> None:
    with contextlib.suppress(Exception):  # arguments that do not fit: logging itself says so
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            errors.add_exception(error)
        else:
            origin = f"{record.pathname}:{record.lineno}"
            errors.add(f"{record.levelname} of {record.name}", record.getMessage(), trace="", origin=origin)


def _make_excepthook(original: Any, errors: FirstErrors) -> Any:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            errors.add_exception(error, trace=trace)
        original(kind, error, trace)

    return hook


def _make_thread_excepthook(original: Any, errors: FirstErrors) -> Any:
    def hook(args: Any) -> None:
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            errors.add_exception(args.exc_value, trace=args.exc_traceback)
        original(args)

    return hook


def _watch_tasks(errors: FirstErrors) -> None:
    """Stores exceptions that Ray converts to `RayTaskError`, which no hook of Python sees."""
    from ray.exceptions import RayTaskError

    @wrap(RayTaskError, "__init__")
    def keep_cause(
        init: Any, self: Any, function_name: Any, traceback_str: Any, cause: Any, *args: Any, **kwargs: Any
    ) -> None:
        init(self, function_name, traceback_str, cause, *args, **kwargs)
        if getattr(cause, "__traceback__", None) is not None:  # one that was sent here has none
            errors.add_exception(cause)


# The driver.


def watch_driver(config: Any, main: dict[str, Any]) -> None:
    """Makes the workers of a run store their first errors, and the driver print them if the run fails.

    Args:
        main: globals of verl's entry point with `run_ppo`; others are ignored.
    """
    if not callable(main.get("run_ppo")):
        return
    folder = run_dir_of(config)
    if folder is not None:
        if OmegaConf.select(config, KEY):
            with open_dict(config):  # a worker may have another working folder
                OmegaConf.update(config, KEY, str(folder))
        os.environ[VARIABLE] = str(folder)
        if OmegaConf.select(config, "ray_kwargs.ray_init") is not None:
            with open_dict(config):
                key = f"ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}"
                OmegaConf.update(config, key, str(folder), force_add=True)
        install(folder)
    if not hasattr(main["run_ppo"], "__wrapped__"):
        main["run_ppo"] = telling(main["run_ppo"], folder)


def telling(run: Any, folder: Path | None) -> Any:
    """Wraps `run` to print the reason of a failure as the process's last output."""

    @functools.wraps(run)
    def run_and_report(*args: Any, **kwargs: Any) -> Any:
        began_at = time.time()
        try:
            return run(*args, **kwargs)
        except Exception as error:
            if _first_errors is not None and not is_sent(error):  # else, the process that raised it has kept it
                _first_errors.add_exception(error)
            # Registered last, so it runs first. It ends Ray, whose output then comes before.
            atexit.register(_print_failure, error, folder, began_at)
            raise

    return run_and_report


def _print_failure(error: BaseException, folder: Path | None, began_at: float) -> None:
    ray = sys.modules.get("ray")
    if ray is not None:
        time.sleep(_DRAIN_S)
        with contextlib.suppress(Exception):
            ray.shutdown()
    records: list[ErrorRecord] = [] if folder is None else read_errors(folder, since=began_at)
    sys.stdout.flush()
    print(failure_report(error, records), file=sys.stderr, flush=True)


if os.environ.get(VARIABLE):
    install(Path(os.environ[VARIABLE]))
