"""The record of one check of `gpu.py`: figures and verdicts, in a file from the moment they exist."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _report import Target


@dataclass(kw_only=True)
class Check:
    """Figures and verdicts of one check on one device."""

    name: str
    device: str
    """`cuda` or `cpu`."""
    out: Path
    """Folder of the files of all checks."""
    figures: dict[str, Any] = field(default_factory=dict)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    skipped: str = ""
    """Why nothing could be tested, with the command that changes it."""

    @property
    def is_gpu(self) -> bool:
        """Returns whether the check runs on a GPU; a CPU rehearses with tiny models."""
        return self.device == "cuda"

    @property
    def folder(self) -> Path:
        """Folder for models and logs of this check."""
        folder = self.out / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def note(self, figures: Mapping[str, Any]) -> None:
        """Records figures without a bound."""
        self.figures |= figures
        self.write()

    def judge(
        self,
        name: str,
        value: float,
        *,
        min_value: float | None = None,
        max_value: float | None = None,
        only_gpu: bool = False,
    ) -> None:
        """Records a value with a bound. NaN, for what could not be measured, misses every bound.

        Args:
            name: of the verdict.
            value: measured.
            min_value: bound of a value that must not be lower.
            max_value: bound of a value that must not be higher.
            only_gpu: a CPU reports the value and does not judge it.
        """
        assert (min_value is None) != (max_value is None), name
        bound = max_value if min_value is None else min_value
        assert bound is not None
        target = Target(bound=bound, at_least=max_value is None)
        is_tested = self.is_gpu or not only_gpu
        verdict = {
            "name": name,
            "value": value,
            "target": str(target),
            "ok": target.is_met(value) if is_tested else None,
        }
        self.verdicts.append(verdict)
        self.write()

    def skip(self, reason: str) -> None:
        """Records why nothing can be tested here, and what to do."""
        self.skipped = reason
        self.write()

    def write(self) -> None:
        """Replaces the file of the check."""
        write_result(
            self.out,
            {
                "check": self.name,
                "device": self.device,
                "skipped": self.skipped,
                "verdicts": self.verdicts,
                "figures": self.figures,
            },
        )


def write_result(out: Path, result: Mapping[str, Any]) -> None:
    """Writes `out/NAME.json` at once, so that a process that is ended leaves the previous file or the new one."""
    path = out / f"{result['check']}.json"
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.replace(path)


def read_result(out: Path, name: str) -> dict[str, Any]:
    """Returns what `out/NAME.json` holds; empty if the check has written nothing."""
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}
