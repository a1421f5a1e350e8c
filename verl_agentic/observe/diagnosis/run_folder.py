"""The files of a run besides its trajectory log. Any may be missing, and the last line may be incomplete."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl_agentic.log.metric_log import read_metrics
from verl_agentic.log.reader import RunLog
from verl_agentic.log.run_files import choose_logs, find_evaluations
from verl_agentic.log.writer import FOLDER

_OUTPUT_BYTES = 4_000_000
# verl's `console` logger prints a step like this.
_CONSOLE_STEP = re.compile(r"step:(\d+) - ((?:\S+?:\S+(?: - )?)+)")
_NUMPY = re.compile(r"^np\.\w+\((.*)\)$")


def read_steps(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the metrics of each step, ascending: from metric files, else from verl's `console` logger."""
    return read_metrics(run_dir) or _read_console_steps(read_output(run_dir))


def _read_console_steps(output: str) -> list[dict[str, Any]]:
    by_step: dict[int, dict[str, Any]] = {}
    for match in _CONSOLE_STEP.finditer(output):
        step = int(match[1])
        numbers = dict(_parse_console_number(pair) for pair in match[2].split(" - ") if ":" in pair)
        by_step.setdefault(step, {"step": step}).update({k: v for k, v in numbers.items() if v is not None})
    return [by_step[step] for step in sorted(by_step)]


def _parse_console_number(pair: str) -> tuple[str, float | None]:
    name, _, text = pair.strip().rpartition(":")
    try:
        return name, float(_NUMPY.sub(r"\1", text))
    except ValueError:
        return name, None


def read_output(run_dir: Path) -> str:
    """Returns the last lines of the newest `*.log` files, the newest last."""
    texts = []
    for path in run_dir.rglob("*.log"):
        with contextlib.suppress(OSError), path.open("rb") as file:  # it may have just gone
            status = os.fstat(file.fileno())
            file.seek(max(0, status.st_size - _OUTPUT_BYTES))
            texts.append((status.st_mtime, file.read().decode("utf-8", errors="replace")))
    return "\n".join(text for _, text in sorted(texts, key=lambda pair: pair[0]))


def read_json_lines(run_dir: Path, pattern: str) -> list[dict[str, Any]]:
    """Returns the objects of all files of that name; broken lines are left out."""
    return [line for path in sorted(run_dir.rglob(pattern)) for line in _read_json_lines(path)]


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    objects = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has just gone
        return []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects


def read_log(run_dir: Path) -> RunLog | None:
    """Returns the trajectory log; None without one. Evaluations are no runs."""
    if all(folder in find_evaluations(run_dir) for folder in choose_logs(run_dir)):
        return None
    return RunLog(run_dir)


def cut_off(run_dir: Path) -> list[Path]:
    """Returns the files of the trajectory log that end in the middle of a record."""
    return [path for path in sorted(run_dir.rglob(f"{FOLDER}/*.arrows")) if _is_cut_off(path)]


def _is_cut_off(path: Path) -> bool:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.MessageReader.open_stream(source)
            while True:
                reader.read_next_message()
    except StopIteration:
        return False
    except (pa.ArrowInvalid, OSError, EOFError):
        return True


def read_reports(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the last reports of agent-loop workers on their waiting episodes."""
    reports = [read_or_none(path, json.loads) for path in sorted(run_dir.rglob("waiting-*.json"))]
    return [report for report in reports if isinstance(report, dict) and isinstance(report.get("episodes"), list)]


def read_tokenizer(run_dir: Path) -> Any:
    """Returns the tokenizer of the run; None without one."""
    from tokenizers import Tokenizer

    paths = sorted(run_dir.rglob("tokenizer/tokenizer.json"))
    return Tokenizer.from_file(str(paths[0])) if paths else None


def last_touched(run_dir: Path) -> float | None:
    """Returns the time of the last write to a file below the folder; None without files."""
    times = []
    for folder, _, names in os.walk(run_dir):
        for name in names:
            if not name.endswith(".tmp"):
                with contextlib.suppress(OSError):  # it may have just gone
                    times.append(os.stat(os.path.join(folder, name)).st_mtime)
    return max(times, default=None)


def read_or_none(path: Path, parse: Callable[[str], Any]) -> Any:
    """Returns the contents of a file; None if it is broken or was removed."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
