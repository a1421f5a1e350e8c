"""The end of a turn, at a stop text, and the end of the turns of an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from verl_agentic.base.types import StopReason
from verl_agentic.episode.codec.clipping import TextTokenizer
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
_SPLIT_TOKENS = 4  # more, for characters that start in an earlier token


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


def ends_in_stop_text(token_ids: Sequence[int], stop_texts: Sequence[str], *, tokenizer: TextTokenizer) -> bool:
    """Returns whether the last token completes a stop text of the protocol, so that the turn is complete."""
    if not stop_texts:
        return False
    # A token has at least one byte.
    tail = list(token_ids)[-max(len(text.encode()) for text in stop_texts) - _SPLIT_TOKENS :]
    texts = [tokenizer.decode(part, clean_up_tokenization_spaces=False) for part in (tail, tail[:-1])]
    return any(texts[0].count(text) > texts[1].count(text) for text in stop_texts)


def cut_at_stop(completion: Completion, stop_texts: Sequence[str], *, tokenizer: TextTokenizer) -> Completion:
    """Returns the turn up to the token that completes the first stop text.

    A part of a sample is a sample of the part, so the kept tokens are trained with their own log-probs.
    """
    ids = completion.token_ids

    def has_stop(length: int) -> bool:
        text = tokenizer.decode(list(ids[:length]), clean_up_tokenization_spaces=False)
        return any(stop in text for stop in stop_texts)

    if not stop_texts or not has_stop(len(ids)):
        return completion
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if has_stop(middle) else (middle + 1, high)
    log_probs = None if completion.log_probs is None else completion.log_probs[:low]
    return replace(completion, token_ids=ids[:low], log_probs=log_probs, finish_reason="stop")
