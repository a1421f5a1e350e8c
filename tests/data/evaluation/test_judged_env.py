"""Self-rewarding: judges score what no verifier scores, and the best and the worst attempt become a pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import END, FakeEnv, decode, encode, episode_setup
from fastapi.responses import JSONResponse
from judges import JudgeServer, canary_of, data_of, judging

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.types import UNSCORED, Action, Message, Reward, StopReason
from verl_agentic.data.export.export_run import ExportOptions, export_run
from verl_agentic.episode.circuit_breaker import CircuitBreaker
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.evaluate.evaluation_log import EpisodeRows, EvaluationLog
from verl_agentic.evaluate.evaluation_run import PolicyBackend, attempt_runner, attempts, evaluate
from verl_agentic.evaluate.judged_env import judged
from verl_agentic.log.files.record_files import numbered_records

POINTS = {"name": "points", "question": "How good is it?", "scale": 5}
TEXTS = {"poem": ["abc", "abcd", "ab", "abcd"], "tie": ["abc", "xyz", "abc", "xyz"]}
"""Task -> answers; the judge gives a point for each letter."""


class Open(FakeEnv):
    """Scores nothing."""

    async def score(self, transcript: Transcript) -> Reward:
        return UNSCORED


def by_length(body: dict[str, Any]) -> str:
    answer = dict(data_of(body))["answer"]
    item = {"name": "points", "reason": "so it is", "score": len(answer)}
    return json.dumps({"canary": canary_of(body), "items": [item]})


async def sample_texts(folder: Path, server: JudgeServer, kind: type[FakeEnv]) -> list[EpisodeRows]:
    def backend_for(attempt: Any) -> PolicyBackend:
        text = TEXTS[attempt.row.prompt[0].content][attempt.sample]
        policy = ScriptedPolicy(lambda messages: text, encode=encode, end_ids=[END])
        return PolicyBackend(setup=episode_setup(policy), usage={})

    rows = [EnvRow(prompt=(Message("user", task),)) for task in TEXTS]
    make_env = judged(kind, server.options(items=[POINTS], retries=0))
    log = EvaluationLog(folder, {"env": "fake"})
    try:
        return await evaluate(
            attempts(rows, 4),
            run_attempt=attempt_runner(make_env, backend_for),
            log=log,
            max_concurrent=1,
            breaker=CircuitBreaker(max_void_share=1.0),
        )
    finally:
        log.close()


async def test_the_best_and_the_worst_judged_attempt_are_a_pair_and_ties_are_none(tmp_path: Path) -> None:
    with judging(by_length) as server:
        episodes = await sample_texts(tmp_path / "run", server, Open)
    assert len(server.bodies) == 8
    assert [rows[-1]["acc"] for rows in episodes] == pytest.approx([0.6, 0.6, 0.8, 0.6, 0.4, 0.6, 0.8, 0.6])
    assert not any(rows[-1]["is_void"] for rows in episodes)
    export_run(tmp_path / "run", tmp_path / "pairs.jsonl", ExportOptions(shape="pairs"))
    (pair,) = [pair for _, pair in numbered_records(tmp_path / "pairs.jsonl")]
    assert decode(pair["prompt_ids"]) == "<user>poem<assistant>"
    assert (decode(pair["chosen_ids"]), pair["chosen_value"]) == ("abcd$", pytest.approx(0.8))
    assert (decode(pair["rejected_ids"]), pair["rejected_value"]) == ("ab$", pytest.approx(0.4))


async def test_a_verifier_comes_before_the_judges(tmp_path: Path) -> None:
    with judging(by_length) as server:
        episodes = await sample_texts(tmp_path, server, FakeEnv)
    assert not server.bodies and {rows[-1]["acc"] for rows in episodes} == {0.0}


async def test_without_a_verdict_an_episode_is_void(tmp_path: Path) -> None:
    with judging(lambda body: JSONResponse({}, status_code=500)) as server:
        episodes = await sample_texts(tmp_path, server, Open)
    assert all(rows[-1]["is_void"] and "no verdict" in rows[-1]["error"] for rows in episodes)


async def test_an_agents_own_conversation_is_judged_with_its_own_prompt_and_keeps_its_details() -> None:
    class Agent(Open):
        async def score(self, transcript: Transcript) -> Reward:
            return replace(UNSCORED, details={"agent_error": "exit code 1"})

    turn = Action(turn=0, text="abcd", content="abcd")
    own = (Message("system", "Be brief."), Message("user", "Write a poem."), turn.to_message())
    with judging(by_length) as server:
        make_env: Any = judged(Agent, server.options(items=[POINTS], retries=0))
        env = make_env(EnvRow(prompt=(Message("user", "Start the agent."),)))
        await env.start()
        reward = await env.score(Transcript(messages=own, actions=(turn,), stop_reason=StopReason.ANSWERED))
    assert (reward.outcome, reward.details) == (pytest.approx(0.8), {"agent_error": "exit code 1"})
    assert "Write a poem." in json.dumps(data_of(server.bodies[0]))
