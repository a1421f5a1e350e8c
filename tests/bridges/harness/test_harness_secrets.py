"""Secrets of agents in a harness, and the endpoints of the gateway beside those that sample."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import StopReason
from verl_agentic.bridges.harness import agents, make_env

_SECRETS = {"answer": "#### 42", "patch": "diff", "hint": "six times seven", "reward_model": {"ground_truth": "42"}}
_PROGRAM = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
body = json.dumps({"messages": task["prompt"]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).read()
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(("keys", "extra"), [((), {}), (("hint", "missing"), {"hint": "six times seven"})])
async def test_an_agent_gets_only_named_keys_of_a_row(
    stage: Any, row: EnvRow, client: Any, counting: Any, keys: tuple[str, ...], extra: dict[str, str]
) -> None:
    seen: list[Any] = []

    async def agent(row: Any, endpoint: Any) -> str:
        seen.append((row.extra, row.ground_truth))
        await client.say(endpoint, [{"role": "user", "content": "go"}])
        return "42"

    def score(row: Any, result: Any, transcript: Any) -> float:
        return float(row.ground_truth == "42" and row.extra == _SECRETS)  # the scorer still has the whole row

    row = replace(row, extra=_SECRETS)
    episode, _ = await stage.play(agent, counting, row=row, score=score, extra_keys=keys)
    assert episode.reward.outcome == 1.0, episode.error
    assert seen == [(extra, None)]

    command = [sys.executable, "-S", "-c", _PROGRAM + "json.dump(task, sys.stdout)"]
    told: list[Any] = []
    await stage.play(
        command, counting, row=row, extra_keys=keys, score=lambda row, result, _: told.append(json.loads(result)) or 1.0
    )
    assert [task["extra_info"] for task in told] == [extra] and set(told[0]) == {"prompt", "extra_info"}


async def test_a_command_gets_no_variables_of_the_trainer_but_named_ones(
    stage: Any, counting: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONSTARTUP", "MY_SETTING"):
        monkeypatch.setenv(name, "secret")
    told: list[dict[str, str]] = []
    command = [sys.executable, "-S", "-c", _PROGRAM + "json.dump(dict(os.environ), sys.stdout)"]
    agents._warn_of_user.cache_clear()
    with caplog.at_level(logging.WARNING):
        episode, _ = await stage.play(
            command, counting, agent_variables=["MY_SETTING", "MISSING"],
            score=lambda row, result, _: told.append(json.loads(result)) or 1.0,
        )  # fmt: skip
    assert episode.stop_reason is StopReason.ANSWERED, episode.error
    own = {name for name in told[0] if name.startswith(("OPENAI_", "ANTHROPIC_", "VERL_AGENTIC_"))}
    assert (
        set(told[0]) - own <= {"PATH", "HOME", "LANG", "LC_CTYPE", "MY_SETTING"} and told[0]["MY_SETTING"] == "secret"
    )
    assert "secret" not in {told[0][name] for name in own}
    assert sum("this user" in record.message for record in caplog.records) == 1


def test_variables_of_what_is_no_command_are_refused(row: EnvRow) -> None:
    with pytest.raises(ConfigError, match="agent_variables"):
        make_env(row, agent="http://127.0.0.1:1", agent_variables=["X"])


async def test_models_and_token_counts_have_the_forms_of_both_apis(stage: Any, client: Any, counting: Any) -> None:
    seen: dict[str, Any] = {}
    messages = [{"role": "user", "content": "What is 6*7?"}]
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
    anthropic = {"anthropic-version": "2023-06-01"}

    async def agent(row: Any, endpoint: Any) -> str:
        async def get(path: str, **headers: str) -> Any:
            answer = await client.http.get(f"{endpoint.base_url}/{path}", headers=headers)
            return answer.status_code, answer.json()

        async def count(**body: Any) -> Any:
            answer = await client.http.post(f"{endpoint.base_url}/messages/count_tokens", json=body, headers=anthropic)
            return answer.status_code, answer.json()

        seen["list"] = await get("models")
        seen["one"] = await get("models/org/any")
        seen["anthropic list"] = await get("models", **anthropic)
        seen["anthropic one"] = await get("models/any", **anthropic)
        seen["count"] = await count(model="m", messages=messages)
        seen["more"] = await count(model="m", messages=messages, system="Be brief.", tools=[tool])
        seen["wrong"] = await count(model="m", messages=[])
        body = {"model": "m", "max_tokens": 50, "messages": messages}
        answer = await client.http.post(f"{endpoint.base_url}/messages", json=body)
        seen["used"] = answer.json()["usage"]["input_tokens"]
        return "42"

    episode, policy = await stage.play(agent, counting)
    assert episode.reward.outcome == 1.0, episode.error
    assert len(policy.samples) == 1  # counting samples nothing, and makes no row
    assert len(episode.trajectories) == 1
    assert seen["list"][1]["object"] == "list" and [model["id"] for model in seen["list"][1]["data"]] == ["policy"]
    status, model = seen["one"]
    assert (status, model["object"], model["id"]) == (200, "model", "org/any")
    assert {model["type"] for model in seen["anthropic list"][1]["data"]} == {"model"}
    assert seen["anthropic list"][1]["has_more"] is False
    status, model = seen["anthropic one"]
    assert (status, model["type"], model["id"]) == (200, "model", "any") and {"display_name", "created_at"} <= set(
        model
    )
    assert seen["count"] == (200, {"input_tokens": seen["used"]})
    assert seen["more"][1]["input_tokens"] > seen["used"]
    assert seen["wrong"][0] == 400 and seen["wrong"][1]["error"]["type"] == "invalid_request_error"


async def test_missing_endpoints_answer_in_the_form_of_the_api(stage: Any, client: Any, counting: Any) -> None:
    seen: list[Any] = []

    async def agent(row: Any, endpoint: Any) -> str:
        for method, path, headers in (
            ("POST", "embeddings", {}),
            ("GET", "chat/completions", {}),
            ("GET", "responses/turn_1", {}),
            ("POST", "messages/batches", {}),
            ("GET", "files", {"anthropic-version": "2023-06-01"}),
        ):
            body = {"json": {}} if method == "POST" else {}
            answer = await client.http.request(method, f"{endpoint.base_url}/{path}", headers=headers, **body)
            seen.append((answer.status_code, answer.json()))
            assert endpoint.api_key not in answer.text
        await client.say(endpoint, [{"role": "user", "content": "go"}])
        return "42"

    episode, _ = await stage.play(agent, counting)
    assert episode.reward.outcome == 1.0, episode.error
    assert [status for status, _ in seen] == [404, 405, 404, 404, 404]
    for _, body in seen[:3]:
        assert {"message", "type", "param", "code"} == set(body["error"])
    for _, body in seen[3:]:
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error") and body["error"]["message"]
