"""Tasks of NeMo-Gym: with its workplace assistant where nemo-gym is installed, else with a server of its contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvUnavailableError, ScoringError
from verl_agentic.base.types import Action, Message, StopReason, ToolCall
from verl_agentic.bridges.nemo_gym import make_env, make_rows
from verl_agentic.bridges.nemo_gym.env import to_response
from verl_agentic.bridges.nemo_gym.rows import row_of
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.run_episode import run_episode

pytest.importorskip("httpx")
fastapi = pytest.importorskip("fastapi")

from loopback import serving_app  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the server's dependencies
REPLY = {"email_id": "00000057", "body": "Thanks for the update."}
PARAMETERS = {"type": "object", "properties": {name: {"type": "string"} for name in REPLY}, "required": [*REPLY]}
TOOL = {
    "type": "function",
    "name": "email_reply_email",
    "description": "Replies.",
    "parameters": PARAMETERS,
    "strict": False,
}
TASK = {
    "id": 0,
    "responses_create_params": {
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Reply to the last email."},
        ],
        "tools": [TOOL],
        "parallel_tool_calls": False,
        "temperature": 1,
    },
    "ground_truth": [{"name": "email_reply_email", "arguments": json.dumps(REPLY)}],
    "category": "workplace_assistant_email",
    "environment_name": "workplace_assistant",
}
ROW = row_of(json.dumps(TASK), where="here")
LIMITS = EpisodeLimits(max_response_tokens=10_000, max_context_tokens=20_000, max_turns=6, max_retries=0)


def real_app() -> Any:
    """Returns the workplace assistant of nemo-gym."""
    assistant = pytest.importorskip("resources_servers.workplace_assistant.app", reason="nemo-gym is not installed")
    from nemo_gym.server_utils import ServerClient  # type: ignore

    config = assistant.WorkbenchResourcesServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="workplace_assistant", domain="agent"
    )
    server = assistant.WorkbenchResourcesServer(config=config, server_client=ServerClient.model_construct())
    return server.setup_webserver()


def fake_app() -> Any:
    """Returns an application that answers as the workplace assistant of nemo-gym 0.4.0 does, for one tool."""
    app, sessions = fastapi.FastAPI(), set()

    @app.post("/seed_session")
    def seed(response: fastapi.Response) -> Any:
        sessions.add(str(len(sessions)))
        response.set_cookie("session", str(len(sessions) - 1))
        return {}

    @app.post("/verify")
    def verify(body: dict[str, Any]) -> Any:
        response = body["response"]
        if not {"id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools"} <= set(
            response
        ):
            raise fastapi.HTTPException(422, "not a response")
        called = [item for item in response["output"] if item["type"] == "function_call"]
        done = [json.loads(call["arguments"]) for call in called if "email_id" in call["arguments"]]
        return {**body, "reward": float(done == [json.loads(one["arguments"]) for one in body["ground_truth"]])}

    @app.post("/{name}")
    def call(name: str, body: dict[str, Any], request: fastapi.Request) -> Any:
        if request.cookies.get("session") not in sessions:
            raise fastapi.HTTPException(400, "Session not initialized. Please call seed_session first.")
        if body["email_id"] != REPLY["email_id"]:
            return {"output": "Email not found."}
        return {"output": "Email replied successfully."}

    return app


@pytest.fixture(params=[real_app, fake_app], ids=["nemo-gym", "contract"])
def app(request: pytest.FixtureRequest) -> Any:
    return request.param()


def reply(**arguments: str) -> Message:
    return Message("assistant", "", tool_calls=(ToolCall("email_reply_email", arguments),))


def after(*turns: Message | str) -> Callable[[Sequence[Message]], Message | str]:
    return lambda messages: turns[sum(message.role == "assistant" for message in messages)]


async def test_the_verifier_pays_for_the_solution_only(app: Any, tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    scripts = {
        1.0: after(reply(**REPLY), "Done."),
        0.0: after("Done."),
        -1.0: after("<tool_call>{", reply(**{**REPLY, "email_id": "9"}), reply(**{**REPLY, "body": "No."}), "Done."),
    }
    async with serving_app(app) as url:
        for expected, script in scripts.items():
            setup = scripted(script, codec=codec, tokenizer=tokenizer, limits=LIMITS)
            episode = await run_episode(ROW, make_env=lambda row: make_env(row, url=url), setup=setup, request_id="r")
            assert (episode.error, episode.reward.outcome) == (None, max(0.0, expected))
            assert episode.messages[0] == Message("system", "Be brief.")
            results = [message.content for message in episode.messages if message.role == "tool"]
            if expected == 1.0:
                assert "successfully" in json.loads(results[0])["output"]
        assert "not found" in results[1]


async def test_every_episode_has_a_session_of_its_own(app: Any) -> None:
    async with serving_app(app) as url:
        envs = [make_env(ROW, url=url) for _ in range(2)]
        for env in envs:
            assert await env.start() == ROW.prompt
        cookies = [dict(env.server.http.cookies) for env in envs]
        assert cookies[0] and cookies[1] and cookies[0] != cookies[1]
        for env in envs:
            await env.close()


async def test_a_call_without_a_session_is_an_error_for_the_policy_and_a_lost_server_is_none(app: Any) -> None:
    async with serving_app(app) as url:
        env = make_env(ROW, url=url)
        await env.start()
        env.server.http.cookies.clear()
        call = Action(turn=0, text="", content="", tool_calls=reply(**REPLY).tool_calls)
        (message,) = (await env.step(call)).messages
        assert message.error_kind == "wrong_arguments" and "Session not initialized" in message.content
    with pytest.raises(EnvUnavailableError, match="cannot be reached"):
        await env.step(call)
    await env.close()


async def test_a_verifier_that_refuses_an_episode_voids_it(app: Any) -> None:
    broken = EnvRow(prompt=ROW.prompt, ground_truth={**TASK, "ground_truth": None, "id": None})
    async with serving_app(app) as url:
        env = make_env(broken, url=url)
        await env.start()
        with pytest.raises(ScoringError, match="verify"):
            await env.score(Transcript(messages=ROW.prompt, actions=(), stop_reason=StopReason.ANSWERED))
        await env.close()


def test_a_response_has_the_calls_that_were_carried_out_with_their_results() -> None:
    calls = (ToolCall("a", {"x": 1}), ToolCall("b", {}, error="malformed", error_kind="malformed_json"))
    messages = (
        *ROW.prompt,
        Message("assistant", "I call.", tool_calls=calls),
        Message("tool", "one"),
        Message("tool", "Error: malformed"),
        Message("assistant", "Done."),
    )
    response = to_response(ROW, Transcript(messages=messages, actions=(), stop_reason=StopReason.ANSWERED))
    shown = [(item["type"], item.get("call_id")) for item in response["output"]]
    assert shown == [
        ("message", None), ("function_call", "call_0_0"), ("function_call_output", "call_0_0"), ("message", None),
    ]  # fmt: skip
    assert response["output"][1]["arguments"] == '{"x": 1}' and response["tools"] == [TOOL]


def test_rows_are_tasks_of_a_file_and_its_splits_differ(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps({**TASK, "id": number}) + "\n" for number in range(60)))
    train, test = (
        {row.ground_truth["id"] for row in make_rows(split=split, count=6, seed=1, file=str(file))}
        for split in ("train", "test")
    )
    assert len(train) == len(test) == 6 and not train & test
    assert len(make_rows(split="train", count=60, seed=1, file=str(file), has_splits=False)) == 60
    with pytest.raises(ConfigError, match="count=60"):
        make_rows(split="test", count=60, seed=1, file=str(file))
    with pytest.raises(ConfigError, match="VERL_AGENTIC_NEMO_GYM_FILE"):
        make_rows(split="test", count=1, seed=1)
    with pytest.raises(ConfigError, match="VERL_AGENTIC_NEMO_GYM_URL"):
        make_env(ROW)


@pytest.mark.parametrize(
    "given",
    [
        [{"role": "user", "content": [{"type": "input_image"}]}],
        [{"role": "robot", "content": ""}],
        [{"type": "reasoning"}],
    ],
)
def test_a_task_that_is_not_text_is_refused_with_its_place(given: list[Any]) -> None:
    with pytest.raises(DataError, match="line 3"):
        row_of(json.dumps({"responses_create_params": {"input": given}}), where="line 3")


def test_calls_in_the_input_become_messages() -> None:
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call", "name": "a", "arguments": '{"x": 1}', "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "one"},
    ]
    row = row_of(json.dumps({"responses_create_params": {"input": given}}), where="")
    call = ToolCall("a", {"x": 1}, "c")
    assert row.prompt == (
        Message("user", "Hello"), Message("assistant", "", tool_calls=(call,)), Message("tool", "one", call_id="c"),
    )  # fmt: skip
