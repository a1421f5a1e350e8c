"""The parts of methods beside a curriculum, which `prompt_order` calls for each batch of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class CurriculumPart(Protocol):
    """One method. `Features.curriculum_parts` names the function that makes it."""

    def before_batch(self, step: int) -> None:
        """Acts before the prompts of a step are drawn. Never waits."""
        ...

    def after_batch(self, batch: Any, uids: Sequence[str]) -> None:
        """Adds columns to the prompts of a batch, in place.

        Args:
            uids: group of each prompt.
        """
        ...
