"""The interface of policies: token ids in, sampled ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from verl_agentic.base.types import Message

FinishReason = Literal["stop", "length", "aborted", "context_full", "content_filter"]
"""Why a turn ended. `context_full` and `content_filter` end the episode. They may come without tokens: the server
refused the conversation."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The tokens of one turn."""

    token_ids: Sequence[int]
    log_probs: Sequence[float] | None
    finish_reason: FinishReason
    min_weights_version: int | None = None
    """Version of the weights that sampled the first token; None if unknown."""
    max_weights_version: int | None = None


class Policy(Protocol):
    """A source of tokens: verl's server, an inference engine, a script."""

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples one turn.

        Args:
            prompt_ids: the whole stream so far.
            messages: the same conversation as messages; unused by token policies.
            max_tokens: maximum number of tokens, at least 1.
            request_id: the same for all turns of an episode, so that a server can reuse its cache.

        Raises:
            PolicyError: the server failed; the trajectory becomes void.
        """
        ...


@runtime_checkable
class Chooser(Protocol):
    """A policy whose engine can restrict a token to some ids (vLLM's `allowed_token_ids`)."""

    async def choose(self, prompt_ids: Sequence[int], *, allowed: Sequence[int], request_id: str) -> Completion:
        """Samples the next token among `allowed`, by the policy's own preferences.

        Raises:
            PolicyError: the server failed; the trajectory becomes void.
        """
        ...


class ScriptedPolicy:
    """Writes turns from a function of the conversation, for tests and demonstrations."""

    def __init__(
        self,
        next_text: Callable[[Sequence[Message]], str | Awaitable[str]],
        *,
        encode: Callable[[str], Sequence[int]],
        end_ids: Sequence[int],
        stop_texts: Sequence[str] = (),
    ) -> None:
        """Makes a policy that answers a conversation with `next_text(messages)`.

        Args:
            next_text: returns the next turn's text without its end-of-turn token.
            encode: text -> ids, special tokens in the text included.
            end_ids: ids that end a turn; count as sampled.
            stop_texts: texts that end a turn (`Codec.stop_texts`), without `end_ids`.
        """
        self._next_text = next_text
        self._stop_texts = tuple(stop_texts)
        self._encode = encode
        self._end_ids = list(end_ids)

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Returns the scripted turn, cut to `max_tokens`; its log-probs are 0."""
        text = self._next_text(messages)
        if not isinstance(text, str):
            text = await text
        has_end = bool(self._stop_texts) and text.endswith(self._stop_texts)
        token_ids = [*self._encode(text), *([] if has_end else self._end_ids)]
        finish: FinishReason = "length" if len(token_ids) > max_tokens else "stop"
        token_ids = token_ids[:max_tokens]
        return Completion(token_ids=token_ids, log_probs=[0.0] * len(token_ids), finish_reason=finish)
