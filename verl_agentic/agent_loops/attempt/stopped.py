"""The end of the turns of an episode."""

from __future__ import annotations

from verl_agentic.types import StopReason

WITHOUT_ANSWER = {
    StopReason.MAX_TURNS: "it used all of its turns",
    StopReason.MAX_TOKENS: "it used all of its tokens",
    StopReason.CONTEXT_FULL: "its context is full",
    StopReason.POLICY_FAULT: "its code used up its time",
}
"""Messages for sub-agents that ended without an answer."""


class Stopped(Exception):
    """Ends the turns of an episode; never leaves this package."""

    def __init__(self, reason: StopReason, error: str | None = None) -> None:
        super().__init__(error or reason.value)
        self.reason = reason
        self.error = error
        """Error message, if it is a failure."""
