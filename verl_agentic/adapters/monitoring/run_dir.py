"""Where a run writes what it tells of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

VARIABLE = "VERL_AGENTIC_RUN_DIR"
"""Environment variable that tells the folder to processes which have no configuration."""
KEY = "actor_rollout_ref.rollout.custom.agentic.log.dir"


def run_dir_of(config: Any) -> Path | None:
    """Returns the folder of the run; None where nothing is to be written."""
    written, told = OmegaConf.select(config, KEY), os.environ.get(VARIABLE)
    # The driver tells its workers: what is relative is so to its own working directory.
    if written and (Path(str(written)).is_absolute() or not told):
        return Path(str(written)).absolute()
    return Path(told) if told else None
