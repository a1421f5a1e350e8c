"""Best of K by Q, and diverse beams: samples several turns and takes one of them. For evaluation only.

The turns are not a sample of the policy's distribution, so they must not be trained on.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from verl_agentic.base.errors import ConfigError, PolicyError, boundary
from verl_agentic.base.types import Message
from verl_agentic.episode.codec.clipping import TextTokenizer
from verl_agentic.episode.policies.policy import Completion, Policy

QFunction = Callable[[Sequence[Message], str], float | Awaitable[float]]
"""Takes the conversation and the text of a next turn; returns its value."""


@runtime_checkable
class TokenValue(Protocol):
    """The value of sampled tokens (`cpu.log_ratio.LogRatio`)."""

    async def of(self, prompt_ids: Sequence[int], response_ids: Sequence[int], mask: Sequence[int]) -> float:
        """Returns the value of the response's tokens with mask 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class BestOfPolicy:
    """Samples `count` turns at once and returns the one with the highest score; the first of equals.

    The score is the value, or without a Q function the mean log-prob, less `diversity` times the highest similarity to
    turns that other attempts at the same task have taken at this place (diverse beams). The similarity of two turns is
    the share of words that they share.

    Paper: https://arxiv.org/abs/2409.09345 (step-level Q-value models)
    """

    policy: Policy
    tokenizer: TextTokenizer
    value: QFunction | TokenValue | None
    count: int
    diversity: float = 0.0
    taken: dict[tuple[str, int], list[set[str]]] = field(default_factory=dict)
    """Words of the turns that were taken, by task and turn; attempts share it."""

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ConfigError(f"best-of needs at least 2 turns to choose from, got {self.count}; raise it")

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples turns; see `Policy.generate`. Raises PolicyError if the Q function fails."""
        names = [request_id, *(f"{request_id}-{number}" for number in range(1, self.count))]
        requests = (
            self.policy.generate(prompt_ids, messages=messages, max_tokens=max_tokens, request_id=name)
            for name in names
        )
        sampled = await asyncio.gather(*requests)
        # A server may refuse some turns.
        candidates = [
            completion for completion in sampled if completion.finish_reason in ("stop", "length")
        ] or sampled[:1]
        values = await asyncio.gather(
            *(self._compute_value(prompt_ids, messages, completion) for completion in candidates)
        )
        words = [set(self._decode_text(completion).split()) for completion in candidates]
        taken_turns = self.taken.setdefault(_locate_turn(messages), [])
        scores = [
            value - self._compute_penalty(turn_words, taken_turns)
            for value, turn_words in zip(values, words, strict=True)
        ]
        chosen = max(range(len(candidates)), key=scores.__getitem__)
        taken_turns += [words[chosen]] * (self.diversity > 0)
        return candidates[chosen]

    def _decode_text(self, completion: Completion) -> str:
        return self.tokenizer.decode(list(completion.token_ids))

    def _compute_penalty(self, words: set[str], taken_turns: Sequence[set[str]]) -> float:
        if not self.diversity:
            return 0.0
        return self.diversity * max(
            (len(words & taken_words) / max(1, len(words | taken_words)) for taken_words in taken_turns), default=0.0
        )

    async def _compute_value(
        self, prompt_ids: Sequence[int], messages: Sequence[Message], completion: Completion
    ) -> float:
        if self.value is None:
            return sum(completion.log_probs or ()) / max(1, len(completion.token_ids))
        ids = list(completion.token_ids)
        with boundary(PolicyError, "the Q function"):
            if isinstance(self.value, TokenValue):
                value = self.value.of(prompt_ids, ids, [1] * len(ids))
            else:
                value = self.value(messages, self._decode_text(completion))
            value = float(await value if inspect.isawaitable(value) else value)
            if not math.isfinite(value):
                raise ValueError(f"a value must be a finite number, got {value}")
            return value


def _locate_turn(messages: Sequence[Message]) -> tuple[str, int]:
    """Returns the task, as the messages before the first turn, and the number of turns."""
    turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
    prompt = messages[: turns[0]] if turns else messages
    return repr([(message.role, message.content) for message in prompt]), len(turns)
