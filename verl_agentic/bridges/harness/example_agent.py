"""The example: an agent that answers questions with a Python interpreter. It knows nothing of training."""

from __future__ import annotations

import json
from typing import Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.env_card import needs_extra
from verl_agentic.bridges.harness.agent import PolicyEndpoint
from verl_agentic.graders.maths.boxed_math import math_answer
from verl_agentic.sandbox.interface import Limits
from verl_agentic.sandbox.pools.pool_owner import pool_of
from verl_agentic.tools.python import PythonTool

_MAX_TURNS = 8
_LIMITS = Limits(wall_s=10.0, cpu_s=11, memory_mb=512, output_bytes=2_000)


async def run(row: EnvRow, endpoint: PolicyEndpoint) -> str:
    """Asks the model until it answers without a call, and returns the answer."""
    with needs_extra("serve", what="the example agent"):
        import httpx
    python = PythonTool(pool_of("process", "auto", at_least=None), limits=_LIMITS)
    messages: list[dict[str, Any]] = [message.to_dict() for message in row.prompt]
    async with httpx.AsyncClient(base_url=endpoint.base_url, timeout=600, trust_env=False) as client:
        for _ in range(_MAX_TURNS):
            request = {"model": endpoint.model, "messages": messages, "tools": [python.schema]}
            answer = await client.post("/chat/completions", json=request)
            answer.raise_for_status()
            message = answer.json()["choices"][0]["message"]
            if not message.get("tool_calls"):
                return message["content"]
            messages += [message, *[await _run_call(call, python) for call in message["tool_calls"]]]
    return ""


async def score(row: EnvRow, result: str, transcript: Transcript) -> float:
    """Returns 1 if the last boxed number of the answer is right, else 0."""
    return await math_answer(result, row.ground_truth, must_be_evaluated=True)


async def _run_call(call: dict[str, Any], python: PythonTool) -> dict[str, Any]:
    text = f"Error: the only tool is {python.name}"
    if call["function"]["name"] == python.name:
        text = (await python.call(json.loads(call["function"]["arguments"]))).content
    return {"role": "tool", "tool_call_id": call["id"], "content": text}
