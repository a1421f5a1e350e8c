"""A judge values one turn: it sees the task, the turns before and the new one, and answers from 0 to 1."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from judges import canary_of, data_of, judging

from verl_agentic.base.errors import ScoringError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.graders.judge.turn_critic import TurnCritic

CONVERSATION = [
    Message("system", "Use tools."),
    Message("user", "2*3?"),
    Message("assistant", "I compute.", tool_calls=(ToolCall("python", {"code": "2*3"}),)),
    Message("tool", "6"),
]


def scoring(score: float) -> Any:
    return lambda body: json.dumps(
        {"canary": canary_of(body), "items": [{"name": "promising", "reason": "so it is", "score": score}]}
    )


async def test_a_turn_is_judged_in_its_conversation() -> None:
    with judging(scoring(7)) as server:
        critic = TurnCritic(endpoint=server.url, models=["m"])
        assert await critic(CONVERSATION, "It is 6.") == pytest.approx(0.7)
        assert await critic(CONVERSATION[:2], "It is 6.") == pytest.approx(0.7)
    blocks = data_of(server.bodies[0])
    assert [source for source, _ in blocks] == ["task", "policy", "tool", "answer"]
    assert "2*3?" in blocks[0][1] and 'python({"code": "2*3"})' in blocks[1][1]
    assert (blocks[2][1], blocks[3][1]) == ("6", "It is 6.")
    assert [source for source, _ in data_of(server.bodies[1])] == ["task", "answer"]


async def test_a_judge_without_a_verdict_is_an_error() -> None:
    with judging(lambda body: JSONResponse({}, status_code=500)) as server:
        critic = TurnCritic(endpoint=server.url, models=["m"], retries=0)
        with pytest.raises(ScoringError, match="no verdict on a turn"):
            await critic(CONVERSATION, "It is 6.")
