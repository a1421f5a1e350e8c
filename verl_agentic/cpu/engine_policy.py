"""An inference engine in this process as a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from verl_agentic.base.types import Message
from verl_agentic.episode.policies.policy import Completion

if TYPE_CHECKING:  # which imports torch
    from verl_agentic.cpu.inference.inference_engine import InferenceEngine
    from verl_agentic.cpu.inference.request import SamplingParams


class EnginePolicy:
    """An inference engine in this process, for evaluation."""

    def __init__(self, engine: InferenceEngine, params: SamplingParams) -> None:
        """Makes a policy that samples with `params`, whose `max_tokens` is set turn by turn."""
        self._engine = engine
        self._params = params

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Samples one turn; see `Policy.generate`."""
        params = dataclasses.replace(self._params, max_tokens=max_tokens)
        return await self._sample_turn(prompt_ids, params, request_id)

    async def choose(self, prompt_ids: Sequence[int], *, allowed: Sequence[int], request_id: str) -> Completion:
        """Samples one of the allowed tokens; see `Chooser.choose`."""
        params = dataclasses.replace(self._params, max_tokens=1, allowed_token_ids=tuple(allowed))
        return await self._sample_turn(prompt_ids, params, request_id)

    async def _sample_turn(self, prompt_ids: Sequence[int], params: SamplingParams, request_id: str) -> Completion:
        generation = await self._engine.generate(prompt_ids, params, request_id=request_id)
        return Completion(
            token_ids=generation.token_ids,
            log_probs=generation.log_probs,
            finish_reason=generation.finish_reason,
            min_weights_version=generation.weights_version,
            max_weights_version=generation.weights_version,
        )
