"""Patches verl: a run of supervised or offline training that resumes at the end of an epoch trains the next one.

Wraps `CheckpointHandler._load_dataloader_state`. At the end of an epoch, the saved data loader is at its end. verl's
SFT trainer begins the next epoch with it, which has no batch then: each such resume skips an epoch. Without the state
the loader begins at its start. verl's RL trainer does not load it either.
"""

from __future__ import annotations

import logging
from typing import Any

from verl.utils.checkpoint.checkpoint_handler import CheckpointHandler

from verl_agentic.verl.patching import wrap

logger = logging.getLogger(__name__)


@wrap(CheckpointHandler, "_load_dataloader_state")
def _load_within_epoch(load: Any, self: Any, checkpoint_path: str) -> None:
    if self.resume_global_step % len(self.train_dataloader):
        load(self, checkpoint_path)
    else:
        logger.info("step %s ends an epoch: the next one starts at its first batch", self.resume_global_step)
