"""RLVRR's outcome for open questions: content and style of a reference."""

from __future__ import annotations

import asyncio

from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.answers.reference_chain import ReferenceChain, content_score, style_score
from verl_agentic.rewards.answers.empty_work import is_empty
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.sandbox.pools.process_pool import shared_pool


@component(low=0.0, high=2.0, kind="outcome", own_deadline=True, info=("content", "style"), needs_ground_truth=True)
async def rlvrr(sample: Sample, *, sandbox: str = "auto") -> Graded:
    """Returns content + style of the final answer, each from 0 to 1; abstains without ground truth.

    Content: keywords of the reference in its order (`reference_chain.content_score`). Style: the sum of weights of the
    passed checks. Reasoning before the answer does not count. An empty
    answer gets 0.

    Args:
        sandbox: backend for the row's checks.

    Raises:
        DataError: the ground truth is not a reference chain (`ReferenceChain.of`).
        SandboxError: the sandbox failed.

    Paper: https://openreview.net/forum?id=ZumVIktGbt. Deviations: the public code runs the model-written checks in the
    trainer's process; here they run in a sandbox, and their weights sum to at most 1. An answer with more than 10 times
    the reference's keywords gets content 0.
    """
    chain = ReferenceChain.of(sample.ground_truth)
    answer = without_thoughts(sample.final_answer)
    if is_empty(answer):  # an empty text may pass style checks
        return Graded(value=0.0, info={"content": 0.0, "style": 0.0})
    content = await asyncio.to_thread(content_score, answer, chain)
    style = await style_score(answer, chain, shared_pool(sandbox)) if chain.checks else 0.0
    return Graded(value=content + style, info={"content": content, "style": style})
