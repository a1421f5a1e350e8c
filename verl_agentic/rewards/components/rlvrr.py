"""RLVRR's outcome for open questions: content and style of a reference."""

from __future__ import annotations

import asyncio

from verl_agentic.rewards.answers.reference_chain import ReferenceChain, content_score, style_score
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_empty
from verl_agentic.rewards.text.reasoning import without_thoughts
from verl_agentic.sandbox.process_pool import shared_pool


@component(low=0.0, high=2.0, kind="outcome", own_deadline=True, info=("content", "style"))
async def rlvrr(sample: Sample, *, sandbox: str = "auto") -> Graded:
    """Returns content + style of the final answer, each from 0 to 1; abstains without ground truth.

    Content: keywords of the reference in its order (`reference_chain.content_score`). Style: the weights of the row's
    checks that the answer passes. Reasoning in front of the answer does not count. An empty
    answer is worth 0, whatever checks it passes.

    Args:
        sample: the episode.
        sandbox: backend in which the row's checks run.

    Raises:
        DataError: the ground truth is no reference chain (`ReferenceChain.of`).
        SandboxError: the sandbox failed.

    Paper: https://openreview.net/forum?id=ZumVIktGbt. Deviations: its public code runs the checks, which a model wrote,
    in the trainer's process; here they run in a sandbox, and their weights must not exceed 1 together. An answer with
    more than 10 times the reference's keywords gets nothing for them.
    """
    if sample.ground_truth is None:
        return ABSTAIN
    chain = ReferenceChain.of(sample.ground_truth)
    answer = without_thoughts(sample.final_answer)
    if is_empty(answer):  # checks of the style are met by an empty text, too
        return Graded(value=0.0, info={"content": 0.0, "style": 0.0})
    content = await asyncio.to_thread(content_score, answer, chain)
    style = await style_score(answer, chain, shared_pool(sandbox)) if chain.checks else 0.0
    return Graded(value=content + style, info={"content": content, "style": style})
