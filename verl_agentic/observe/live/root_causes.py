"""The causes of a failed run: first errors of its processes, and the exception that ended it, without Ray's layers."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_MOST = 10
_FRAMES = 4
"""Number of innermost frames of a traceback to print."""
_SKIPPED = ("ray/_private/", "ray/util/", "ray/_raylet", "verl_agentic/verl/extensions/monitoring/error_log.py")
"""Files that are part of every traceback."""
_FILE = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_RULE = "=" * 20


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """One kind of error of one process, or of several."""

    time: float
    """Time when it was raised first, in seconds since 1970."""
    process: str
    actor: str
    type: str
    message: str
    traceback: str
    where: str
    """Its last line of code."""
    count: int
    num_processes: int = 1


@dataclass(frozen=True, kw_only=True)
class Root:
    """An exception without Ray's layers."""

    type: str
    message: str
    traceback: str
    """As text if the exception comes from another process, else empty."""
    where: str


def root_of(error: BaseException) -> Root:
    """Returns the cause of an exception without Ray's layers.

    Ray wraps the exception of a task (`RayTaskError`, once for every process that it passes through), and sends the
    traceback as text. The death of an actor (`ActorDiedError`) is a cause itself.
    """
    text, visited_ids = "", set()
    while id(error) not in visited_ids:
        visited_ids.add(id(error))
        if is_sent(error):
            # A wrapper that is also an instance of its cause has only its text.
            text = vars(error).get("traceback_str") or str(error)
        inner = (getattr(error, "cause", None) or error.__cause__) if _is_of_ray(error) else None
        if not isinstance(inner, BaseException):
            break
        error = inner
    return Root(type=type(error).__name__, message=_read_message(error), traceback=text, where=last_frame(error, text))


def is_sent(error: BaseException) -> bool:
    """Returns whether Ray has passed an exception here from another task."""
    return any(kind.__name__ == "RayTaskError" for kind in type(error).__mro__)


def _is_of_ray(error: BaseException) -> bool:
    return any(kind.__module__.startswith("ray.") for kind in type(error).__mro__)


def _read_message(error: BaseException) -> str:
    if not _is_of_ray(error):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "; ".join(line for line in lines if not re.match(r"(actor_id|namespace|ip): ", line))
    if "SYSTEM_ERROR" not in text:
        return text
    text = re.sub(r" Some common causes include.*", "", text)  # Ray's long advice
    return f"{text} The usual cause is that memory ran out: see `dmesg` on its machine."


def last_frame(error: BaseException, text: str = "") -> str:
    """Returns `file:line` where an exception was raised; empty if unknown.

    Args:
        text: its traceback as text, if it comes from another process.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not text:
        return f"{frames[-1].filename}:{frames[-1].lineno}"
    places = _FILE.findall(text)
    return f"{places[-1][0]}:{places[-1][1]}" if places else ""


def read_errors(run_dir: Path, *, since: float = 0.0) -> list[ErrorRecord]:
    """Returns the errors that `verl.extensions.monitoring.error_log` wrote in the processes of a run."""
    records = []
    for path in run_dir.rglob("errors-*.jsonl"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has just gone
            continue
        for line in text.splitlines():
            try:
                fields: Mapping[str, Any] = json.loads(line)
                record = ErrorRecord(**fields)
            except (ValueError, TypeError):
                continue  # cut off, or of another version
            if record.time >= since:
                records.append(record)
    return records


def merged(records: Sequence[ErrorRecord]) -> list[ErrorRecord]:
    """Returns one record for each kind, the earliest first, with the counts of all processes."""
    kinds: dict[tuple[str, str], ErrorRecord] = {}
    for record in sorted(records, key=lambda record: record.time):
        total = kinds.setdefault((record.type, record.where), replace(record, count=0, num_processes=0))
        count, number = total.count + record.count, total.num_processes + 1
        kinds[record.type, record.where] = replace(total, count=count, num_processes=number)
    return list(kinds.values())


def failure_report(error: BaseException, records: Sequence[ErrorRecord]) -> str:
    """Returns the last message of a failed run: its first errors, and the error that ended it.

    Args:
        error: the exception that ended the driver.
        records: errors of its processes; may be empty.
    """
    root, kinds = root_of(error), merged(records)
    lines = ["", f"{_RULE} verl_agentic: why the run failed {_RULE}"]
    if len(kinds) > 1:
        lines.append(f"First errors of its processes, the earliest first ({min(len(kinds), _MOST)} of {len(kinds)}):")
    for number, record in enumerate(kinds[:_MOST], 1):
        times = "" if record.count == 1 else f", {record.count} times"
        times += "" if record.num_processes == 1 else f" in {record.num_processes} processes"
        lines.append(f"{number}. {record.type}: {_shorten_message(record.message)}")
        lines.append(f"   in {record.process}{times}")
        lines += _list_frames(record.traceback)
    named = enumerate(((kind.type, kind.where) for kind in kinds[:_MOST]), 1)
    same = [number for number, kind in named if kind == (root.type, root.where)]
    lines.append(f"Ended by {f'number {same[0]}, ' if same else ''}{root.type}: {_shorten_message(root.message)}")
    if not same:
        lines += _list_frames(root.traceback or "".join(traceback.format_tb(error.__traceback__)))
    return "\n".join([*lines, _RULE * 3])


def _shorten_message(message: str) -> str:
    one_line = " ".join(message.split())
    return one_line if len(one_line) <= 600 else f"{one_line[:400]} ... {one_line[-150:]}"


def _list_frames(text: str) -> list[str]:
    """Returns the innermost frames of a traceback."""
    lines, frames = text.splitlines(), []
    for index, line in enumerate(lines):
        if _FILE.match(line) and not any(part in line for part in _SKIPPED):
            code = lines[index + 1] if index + 1 < len(lines) and not _FILE.match(lines[index + 1]) else ""
            frames.append([f"   {line.strip()}", *([f"     {code.strip()}"] if code.strip() else [])])
    return [line for frame in frames[-_FRAMES:] for line in frame]
