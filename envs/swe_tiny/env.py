"""The environment `swe_tiny`: fix the wrong operator of a short function with one edit; hidden calls decide."""

from __future__ import annotations

import json

from verl_agentic import EnvRow, Reward, StopReason, ToolEnv, Transcript

from .functions import results


class SweTinyEnv(ToolEnv):
    """A function with a bug, and the tool `edit`. An answer without a call submits the function."""

    def __init__(self, row: EnvRow) -> None:
        self._source = str(row.extra["source"])
        super().__init__(row, [self.edit], max_parallel_calls=1)

    async def edit(self, old: str, new: str) -> str:
        """Replaces a text of the function, which must occur exactly once.

        Args:
            old: the text to replace
            new: the new text
        """
        count = self._source.count(old) if old else 0
        if count != 1:
            return f"Error: found {count} times"
        self._source = self._source.replace(old, new)
        return "ok"

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the submitted function returns the right values for all hidden calls, else 0."""
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        return Reward(float(results(self._source) == json.loads(self.row.ground_truth)))


def make_env(row: EnvRow) -> SweTinyEnv:
    """Returns the environment of one episode.

    Args:
        row: `extra["source"]` is the function with a bug; `ground_truth` the right values, as JSON.
    """
    return SweTinyEnv(row)
