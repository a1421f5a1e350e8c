"""Compares a large file with itself and with a held-out file: time, memory and errors.

`wall_s`, `cpu_s`, `peak_gb`: of 1,000,000 rows of 500 tokens against 2,000 held-out rows with two processes. The memory
is that of all processes (proportional set size). `missed`, `false`: planted repeats that were not found, and found
rows that were not planted. The file has 1,000 copies with other case and punctuation, 1,000 with one changed word in
250, and 1,000 rows that share 13 tokens with a held-out row.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from _report import Target, progress, report

from verl_agentic.data.overlap.find_overlaps import KINDS, find_overlaps

_TOKENS, _SPAN, _HELD_OUT, _PLANTED = 500, 13, 2_000, 1_000
_VOCABULARY = 30_000


def main() -> int:
    """Runs the measurement and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 rows")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the file (default %(default)s)")
    options = parser.parse_args()
    count = 20_000 if options.quick else options.rows
    with tempfile.TemporaryDirectory(prefix="data_check_") as name:
        train, held_out = Path(name) / "train.jsonl", Path(name) / "held_out.jsonl"
        progress(f"writing {count} rows")
        expected = _write(train, held_out, count)
        progress(f"comparing {train.stat().st_size / 1e9:.2f} GB")
        started, cpu_s = time.monotonic(), _cpu_s()
        with _Memory() as memory:
            found = find_overlaps([train], [held_out], jobs=2)
        wall_s, cpu_s = time.monotonic() - started, _cpu_s() - cpu_s
    rows = found.repeated - found.num_against
    kinds = dict(zip(rows.tolist(), (KINDS[kind] for kind in found.kinds[found.repeated]), strict=True))
    return report(
        "data_check",
        ratios={},
        figures={
            "rows": count,
            "tokens_per_row": _TOKENS,
            "wall_s": round(wall_s, 1),
            "cpu_s": round(cpu_s, 1),
            "peak_gb": round(memory.peak_bytes / 1e9, 2),
            "missed": sum(kinds.get(row) != kind for row, kind in expected.items()),
            "false": len(set(kinds) - set(expected)),
        },
        targets={
            "wall_s": Target(bound=600, at_least=False),
            "peak_gb": Target(bound=4, at_least=False),
            "missed": Target(bound=0, at_least=False),
            "false": Target(bound=0, at_least=False),
        },
    )


def _write(train: Path, held_out: Path, count: int) -> dict[int, str]:
    """Writes both files; returns row -> kind of the planted repeats."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(_VOCABULARY)], dtype=object)
    tests = rng.integers(0, _VOCABULARY, (_HELD_OUT, _TOKENS))
    _write_rows(held_out, ((f"test {row}", " ".join(vocabulary[ids])) for row, ids in enumerate(tests)))
    expected: dict[int, str] = {}
    planted = _PLANTED if count > 10 * _PLANTED else count // 10

    def rows() -> Iterator[tuple[str, str]]:
        sources: list[np.ndarray] = []
        for row in range(count):
            ids = rng.integers(0, _VOCABULARY, _TOKENS)
            text, answer = "", str(row)
            if row < planted:
                sources.append(ids)
            elif row >= count - planted:
                source = row - (count - planted)
                text, answer = ", ".join(vocabulary[sources[source]]).upper(), str(source)
                expected[row] = "exact"
            elif row >= count - 2 * planted:
                ids = sources[row - (count - 2 * planted)].copy()
                ids[::250] = rng.integers(0, _VOCABULARY, len(ids[::250]))
                expected[row] = "near"
            elif row >= count - 3 * planted:
                ids[100 : 100 + _SPAN] = tests[row % _HELD_OUT, 200 : 200 + _SPAN]
                expected[row] = "span"
            yield answer, text or " ".join(vocabulary[ids])

    _write_rows(train, rows())
    return expected


def _write_rows(path: Path, rows: Iterator[tuple[str, str]]) -> None:
    with path.open("w") as file:
        for answer, text in rows:
            prompt = [{"role": "user", "content": text}]
            file.write(json.dumps({"prompt": prompt, "reward_model": {"ground_truth": answer}}) + "\n")


class _Memory:
    """Measures the memory of this process and its children."""

    def __enter__(self) -> _Memory:
        self.peak_bytes = 0
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_done.set()
        self._thread.join()

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._is_done.wait(1.0):
            self.peak_bytes = max(self.peak_bytes, sum(map(_bytes, [process, *process.children(recursive=True)])))


def _cpu_s() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _bytes(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


if __name__ == "__main__":
    sys.exit(main())
