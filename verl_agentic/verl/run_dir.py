"""The folder of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

VARIABLE = "VERL_AGENTIC_RUN_DIR"
"""Environment variable with the folder, for processes without a configuration."""
KEY = "actor_rollout_ref.rollout.custom.agentic.log.dir"


def run_dir_of(config: Any) -> Path | None:
    """Returns the folder of the run, or None if nothing is written."""
    configured_dir, inherited_dir = OmegaConf.select(config, KEY), os.environ.get(VARIABLE)
    # The driver passes it to its workers; relative paths are relative to its working directory.
    if configured_dir and (Path(str(configured_dir)).is_absolute() or not inherited_dir):
        return Path(str(configured_dir)).absolute()
    return Path(inherited_dir) if inherited_dir else None
