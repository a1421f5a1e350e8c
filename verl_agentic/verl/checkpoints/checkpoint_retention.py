"""Patches verl: `BaseCheckpointManager.remove_previous_save_local_path` keeps the last healthy checkpoints.

`max_actor_ckpt_to_keep` removes the oldest checkpoints as soon as a newer one is saved, before its health is known.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

from verl_agentic.verl.checkpoints.healthy_checkpoints import is_kept
from verl_agentic.verl.patching import wrap


@wrap(BaseCheckpointManager, "remove_previous_save_local_path")
def _keep_healthy(remove: Any, self: Any, path: str | list[str]) -> None:
    paths = [path] if isinstance(path, str) else list(path)
    spared: list[str] = vars(self).setdefault("_agentic_spared", [])
    # A step that is saved again after a rollback is listed twice.
    remaining_paths = Counter(self.previous_saved_paths) - Counter(paths)
    old = [p for p in dict.fromkeys([*spared, *paths]) if p not in remaining_paths]
    spared[:] = [p for p in old if is_kept(p)]
    remove(self, [p for p in old if p not in spared])
