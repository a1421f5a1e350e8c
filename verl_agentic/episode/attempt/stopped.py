"""The end of the turns of an episode."""

from __future__ import annotations

from collections.abc import Mapping

from verl_agentic.base.types import StopReason
from verl_agentic.episode.policies.policy import Completion, FinishReason

WITHOUT_ANSWER = {
    StopReason.MAX_TURNS: "it used all of its turns",
    StopReason.MAX_TOKENS: "it used all of its tokens",
    StopReason.CONTEXT_FULL: "its context is full",
    StopReason.CONTENT_FILTER: "a content filter refused it",
    StopReason.POLICY_FAULT: "its code used up its time",
}
"""Messages for sub-agents that ended without an answer."""
ENDED_BY_SERVER: Mapping[FinishReason, StopReason] = {
    "context_full": StopReason.CONTEXT_FULL,
    "content_filter": StopReason.CONTENT_FILTER,
}
"""Finish reasons of a turn that end its episode."""


class Stopped(Exception):
    """Ends the turns of an episode; never leaves this package."""

    def __init__(self, reason: StopReason, error: str | None = None) -> None:
        super().__init__(error or reason.value)
        self.reason = reason
        self.error = error
        """Error message, if it is a failure."""


def check_sampled(completion: Completion) -> None:
    """Raises Stopped if the server has aborted a turn, or refuses to sample one."""
    if completion.finish_reason == "aborted":
        raise Stopped(StopReason.CANCELLED, "the server aborted a turn and did not resume it")
    if not completion.token_ids and completion.finish_reason in ENDED_BY_SERVER:
        raise Stopped(ENDED_BY_SERVER[completion.finish_reason])
