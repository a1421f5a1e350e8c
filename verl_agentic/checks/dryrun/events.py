"""Events of a dry run: JSON lines in one file per process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "VERL_AGENTIC_DRYRUN_DIR"
"""Environment variable: the folder of the event files."""
MODEL_VARIABLE = "VERL_AGENTIC_DRYRUN_MODEL"
"""Environment variable: the initial model folder."""
TEMPERATURE_VARIABLE = "VERL_AGENTIC_DRYRUN_TEMPERATURE"
"""Environment variable: the sampling parameters."""
STAGES = ("start", "rollout", "reward", "log_probs", "advantage", "critic", "update", "weights")
"""Stages of `main_ppo`, in order."""


class Events:
    """The events of all processes, read incrementally."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[dict[str, Any]] = []
        self._offsets: dict[Path, int] = {}

    def refresh(self) -> list[dict[str, Any]]:
        """Reads new events and returns them in the order of time."""
        new = []
        for path in sorted(self.folder.glob("events-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._offsets[path] = self._offsets.get(path, 0) + len(whole) + 1
                new += [json.loads(line) for line in whole.split(b"\n")]
        new.sort(key=lambda event: event["time"])
        self.all += new
        return new

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of a kind, in the order of time."""
        return sorted((event for event in self.all if event["event"] == kind), key=lambda event: event["time"])


def read_completions(folder: Path) -> list[dict[str, Any]]:
    """Returns every turn: `prompt` and `ids` are token ids, `scripted` is False for sampled turns."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("completions-*.jsonl"))
        for line in path.read_bytes().split(b"\n")
        if line
    ]


def sampled_flags(token_ids: Sequence[int], completions: Iterable[dict[str, Any]]) -> list[bool]:
    """Returns for every token of a row (prompt and response) whether the policy wrote it.

    A turn's tokens count if its prompt equals the row up to there. This does not use the loop's masks, so that they can
    be checked against it.
    """
    flags, ids = [False] * len(token_ids), list(token_ids)
    for completion in completions:
        prompt, turn = completion["prompt"], completion["ids"]
        start = len(prompt)
        if start >= len(ids) or ids[:start] != prompt:
            continue
        for place, token in enumerate(turn[: len(ids) - start], start=start):
            if ids[place] != token:
                break
            flags[place] = True
    return flags
