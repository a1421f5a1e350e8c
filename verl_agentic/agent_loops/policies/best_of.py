"""Best of K by Q: samples several turns and takes the one that a Q function values most. For evaluation only.

The turns are not a sample of the policy's distribution, so they must not be trained on.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from verl_agentic.agent_loops.codec.clipping import TextTokenizer
from verl_agentic.agent_loops.policies.policy import Completion, Policy
from verl_agentic.errors import ConfigError, PolicyError, boundary
from verl_agentic.types import Message

QFunction = Callable[[Sequence[Message], str], float | Awaitable[float]]
"""Takes the conversation and the text of a next turn; returns its value."""


@runtime_checkable
class TokenValue(Protocol):
    """The value of sampled tokens (`inference.log_ratio.LogRatio`)."""

    async def of(self, prompt_ids: Sequence[int], response_ids: Sequence[int], mask: Sequence[int]) -> float:
        """Returns the value of the response's tokens with mask 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class BestOfPolicy:
    """Samples `count` turns at once and returns the one with the highest value; the first of equals.

    Paper: https://arxiv.org/abs/2409.09345 (step-level Q-value models)
    """

    policy: Policy
    tokenizer: TextTokenizer
    value: QFunction | TokenValue
    count: int

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ConfigError(f"best-of needs at least 2 turns to choose from, got {self.count}; raise it")

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples turns; see `Policy.generate`. Raises PolicyError if the Q function fails."""
        names = [request_id, *(f"{request_id}-{number}" for number in range(1, self.count))]
        asked = (
            self.policy.generate(prompt_ids, messages=messages, max_tokens=max_tokens, request_id=name)
            for name in names
        )
        found = await asyncio.gather(*asked)
        values = await asyncio.gather(*(self._value(prompt_ids, messages, one) for one in found))
        return found[max(range(len(found)), key=values.__getitem__)]

    async def _value(self, prompt_ids: Sequence[int], messages: Sequence[Message], completion: Completion) -> float:
        ids = list(completion.token_ids)
        with boundary(PolicyError, "the Q function"):
            if isinstance(self.value, TokenValue):
                value = self.value.of(prompt_ids, ids, [1] * len(ids))
            else:
                value = self.value(messages, self.tokenizer.decode(ids))
            value = float(await value if inspect.isawaitable(value) else value)
            if not math.isfinite(value):
                raise ValueError(f"a value must be a finite number, got {value}")
            return value
