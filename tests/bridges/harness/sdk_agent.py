"""An agent of the OpenAI Agents SDK, for runs of verl."""

from __future__ import annotations

from typing import Any

import agents
from openai import AsyncOpenAI


@agents.function_tool
def multiply(left: int, right: int) -> int:
    """Multiplies two numbers."""
    return left * right


async def run(row: Any, endpoint: Any) -> str:
    """Returns the agent's answer."""
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key) as client:
        model = agents.OpenAIChatCompletionsModel(model=endpoint.model, openai_client=client)
        worker = agents.Agent(name="worker", instructions="Use the tool.", model=model, tools=[multiply])
        return (await agents.Runner.run(worker, row.prompt[-1].content)).final_output
