"""Folders that a run writes to, and the checkpoint that it continues from, as verl would use them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_agentic.verl.extensions.preflight.rows_as_verl import is_remote
from verl_agentic.verl.sections import AGENTIC

_WRITTEN = (
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
    f"{AGENTIC}.log.dir",
)
_TRACKER = "latest_checkpointed_iteration.txt"
_STEP = "global_step_"
_RESUME_MODES = ("disable", "auto", "resume_path")
_BYTES = 4096


def unwritable_folders(config: DictConfig) -> list[str]:
    """Returns the folders that cannot be made or written to. Each is tried, and nothing of it is left."""
    faults = []
    for key, folder in _iter_paths(config, _WRITTEN):
        try:
            _try_to_write(Path(folder).expanduser())
        except OSError as cause:
            why = cause.strerror or cause
            faults.append(f"{key}: nothing can be written to {folder}, got {why}; name another folder or free its disk")
    return faults


def checkpoint_faults(config: DictConfig) -> list[str]:
    """Returns what is wrong with the checkpoint that the run continues from."""
    mode = _select_value(config, "trainer.resume_mode")
    if mode not in _RESUME_MODES:
        return [f"trainer.resume_mode must be one of {list(_RESUME_MODES)}, got {mode!r}"]
    try:
        folder = _find_checkpoint(config, mode)
    except ValueError as refused:
        return [str(refused)]
    if folder is None:
        return []
    if not (folder / "actor").is_dir():
        return [f"the checkpoint {folder} has no folder actor; name a whole checkpoint, or set resume_mode=disable"]
    step, total = int(str(folder).rpartition(_STEP)[-1]), _select_value(config, "trainer.total_training_steps")
    if isinstance(total, int) and step >= total:
        return [
            f"the run continues from step {step} and trainer.total_training_steps={total}: it has no step left; raise "
            "it, or name another folder"
        ]
    return []


def _find_checkpoint(config: DictConfig, mode: str) -> Path | None:
    """Returns the folder of the checkpoint; None if the run begins anew."""
    if mode == "disable":
        return None
    if mode == "auto":
        folder = Path(str(_select_value(config, "trainer.default_local_dir"))).expanduser()
        if not (folder / _TRACKER).is_file():
            return None
        text = (folder / _TRACKER).read_text(errors="replace")
        if not text.strip().isdecimal():
            raise ValueError(f"{folder / _TRACKER} must hold a step, got {text[:40]!r}; correct or remove it")
        checkpoint = folder / f"{_STEP}{int(text)}"
        return checkpoint if checkpoint.exists() else None  # then verl begins anew
    path = _select_value(config, "trainer.resume_from_path")
    if not isinstance(path, str):
        raise ValueError(f"trainer.resume_mode=resume_path needs trainer.resume_from_path, got {path}; name a "
                         f"checkpoint's folder {_STEP}N")  # fmt: skip
    _, _, step = path.rpartition(_STEP)  # as verl reads the step
    if not step.isdecimal():
        raise ValueError(f"trainer.resume_from_path must end with {_STEP}N, the folder of a checkpoint, got {path}")
    if not Path(path).is_dir():
        raise ValueError(f"trainer.resume_from_path: there is no folder {path}; name one that exists")
    return Path(path)


def _iter_paths(config: DictConfig, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key in keys:
        value = _select_value(config, key)
        if isinstance(value, str) and value and not is_remote(value):
            yield key, value


def _try_to_write(folder: Path) -> None:
    """Makes the folder and writes a file into it, then removes what it made. Raises OSError if one of them fails."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0" * _BYTES)
            file.flush()
            os.fsync(file.fileno())
    finally:
        for place in missing:
            with contextlib.suppress(OSError):  # not made, or used by somebody else meanwhile
                place.rmdir()


def _select_value(config: DictConfig, key: str) -> Any:
    return OmegaConf.select(config, key, throw_on_missing=False)
