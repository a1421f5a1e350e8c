"""Files of a run that are written once: configuration, tokenizer, record of its end. Finds runs and evaluations."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.base.errors import DataError
from verl_agentic.log.secrets import own_secrets
from verl_agentic.log.writer import FOLDER

logger = logging.getLogger(__name__)
ENDED = "ended.jsonl"
"""File with a line when the trainer begins (`"ended": false`) and returns (`true`); the last line counts."""
EVALUATION = "evaluation.json"
"""File with the settings of an evaluation, which marks its folder."""
_SECRET_KEY = re.compile(r"api_?key|token$|secret|passw", re.IGNORECASE)


def write_config(folder: Path, config: Any) -> None:
    """Writes `config.yaml` without secrets: keys with names of secrets, and secrets of the environment."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(_without_secrets(own_secrets().removed(config)), sort_keys=False, allow_unicode=True)
        (folder / "config.yaml").write_text(text, encoding="utf-8")
    except (OSError, yaml.YAMLError) as cause:
        logger.warning("the configuration is not in %s: %s", folder, cause)


def write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Writes `tokenizer/`, with which the viewer decodes single tokens."""
    try:
        tokenizer.save_pretrained(str(folder / "tokenizer"))
    except Exception as cause:  # some custom tokenizers cannot be saved
        logger.warning("the tokenizer is not in %s, got %s: %s", folder, type(cause).__name__, cause)


def find_runs(folder: Path) -> list[Path]:
    """Returns the folders of runs below a folder, itself included: those with metrics or trajectories."""
    runs = {path.parent for path in folder.rglob("metrics-*.jsonl")} | _find_logs(folder)
    return sorted(run for run in runs if not _is_evaluation(run))


def find_evaluations(folder: Path) -> list[Path]:
    """Returns the folders of evaluations with episodes below a folder, itself included."""
    return sorted(filter(_is_evaluation, _find_logs(folder)))


def choose_logs(folder: Path) -> list[Path]:
    """Returns the folders whose trajectories a folder stands for.

    An evaluation stands for itself alone. Another folder stands for the runs at or below it, or else for evaluations.
    """
    logs = sorted(_find_logs(folder))
    if folder in logs and _is_evaluation(folder):
        return [folder]
    return [log for log in logs if not _is_evaluation(log)] or logs


def name_runs(run_dirs: Sequence[Path]) -> list[str]:
    """Returns the parts of paths that differ, without what all begin or end with."""
    parts = [path.resolve().parts for path in run_dirs]
    start = _count_equal(parts)
    end = _count_equal([path[start:][::-1] for path in parts])
    return [os.sep.join(path[start : len(path) - end]) or path[-1] for path in parts]


def _count_equal(rows: Sequence[Sequence[str]]) -> int:
    """Returns how many first values all rows have in common."""
    return sum(1 for _ in itertools.takewhile(lambda values: len(set(values)) == 1, zip(*rows, strict=False)))


def require_one_run(folder: Path) -> None:
    """Checks that a folder has the files of one run. Raises DataError for several runs, which would be read as one."""
    if len(runs := find_runs(folder)) > 1:
        names = ", ".join(str(run) for run in runs)
        raise DataError(f"{folder} has {len(runs)} runs; name one of {names}")


def _find_logs(folder: Path) -> set[Path]:
    return {path.parent.parent for path in folder.rglob(f"{FOLDER}/trajectories-*.arrows")}


def _is_evaluation(folder: Path) -> bool:
    return (folder / EVALUATION).is_file()


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: "[removed]" if _is_secret(key, item) else _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and _SECRET_KEY.search(str(key)) is not None
