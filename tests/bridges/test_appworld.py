"""Episodes on a server with the contract of AppWorld's environment server, which has one world at a time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvBusyError, EnvError, EnvUnavailableError
from verl_agentic.base.types import Action, StopReason, ToolCall
from verl_agentic.bridges.appworld import env as appworld
from verl_agentic.bridges.appworld import make_env, make_rows

pytest.importorskip("httpx")
fastapi = pytest.importorskip("fastapi")

from loopback import serving_app  # noqa: E402

ROW = EnvRow(prompt=(), extra={"task_id": "82e2fac_1"})
OVER = Transcript(messages=(), actions=(), stop_reason=StopReason.ENV_DONE)
SUPERVISOR = {"first_name": "Ann", "last_name": "Lee", "email": "ann@lee.com", "phone_number": "123"}


def fake_app(log: list[str]) -> Any:
    """Returns an application with the routes, arguments and answers of `appworld serve environment`."""
    app, world = fastapi.FastAPI(), {}

    def open_world(task_id: str) -> dict[str, Any]:
        if world.get("task_id") != task_id:
            raise fastapi.HTTPException(500, "Internal Server Error")
        return world

    @app.post("/initialize")
    async def initialize(body: dict[str, Any]) -> Any:
        log.append("initialize")
        world.update(task_id=body["task_id"], code=[])
        told = {"task_id": body["task_id"], "instruction": "Like all songs.", "supervisor": SUPERVISOR}
        return {"output": {**told, "datetime": "2023-05-18T12:00:00"}}

    @app.post("/execute")
    async def execute(body: dict[str, Any]) -> Any:
        open_world(body["task_id"])["code"].append(body["code"])
        return {"output": "Execution failed. Traceback:\nNameError" if body["code"] == "x" else "Execution successful."}

    @app.post("/task_completed")
    async def task_completed(body: dict[str, Any]) -> Any:
        return {"output": any("complete_task" in code for code in open_world(body["task_id"])["code"])}

    @app.post("/evaluate")
    async def evaluate(body: dict[str, Any]) -> Any:
        liked = "like()" in open_world(body["task_id"])["code"]
        passes = [{"requirement": "no other change", "label": "no_op_pass"}]
        wanted = {"requirement": "songs are liked", "trace": "", "label": "no_op_fail"}
        passes, failures = ([*passes, wanted], []) if liked else (passes, [wanted])
        return {"output": {"success": liked, "difficulty": 1, "num_tests": 2, "passes": passes, "failures": failures}}

    @app.post("/close")
    async def close(body: dict[str, Any]) -> Any:
        open_world(body["task_id"])
        log.append("close")
        world.clear()
        return {"output": None}

    return app


def running(code: str) -> Action:
    return Action(turn=0, text="", content="", tool_calls=(ToolCall("python", {"code": code}),))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("code", "outcome", "passed"), [("like()", 1.0, 1.0), ("pass", 0.0, 0.5)])
async def test_the_outcome_is_that_of_the_tests_of_the_final_state(code: str, outcome: float, passed: float) -> None:
    log: list[str] = []
    async with serving_app(fake_app(log)) as url:
        env = make_env(ROW, urls=url)
        system, user = await env.start()
        assert "Ann Lee (ann@lee.com, 123)" in system.content and user.content == "Like all songs."
        assert "Traceback" in (await env.step(running("x"))).messages[0].content
        assert (await env.step(running(code))).stop is None
        assert (await env.step(running("apis.supervisor.complete_task()"))).stop is StopReason.ENV_DONE
        reward = await env.score(OVER)
        assert (reward.outcome, reward.info["tests_passed"]) == (outcome, passed)
        assert [one["requirement"] for one in reward.details["failures"]] == ([] if outcome else ["songs are liked"])
        await env.close()
        assert log == ["initialize", "close"]


async def test_a_server_has_one_episode_at_a_time() -> None:
    log: list[str] = []
    async with serving_app(fake_app(log)) as url, serving_app(fake_app([])) as other:
        first, second, third = (make_env(ROW, urls=f"{url} {other}") for _ in range(3))
        await asyncio.gather(first.start(), second.start())
        assert first._server and second._server and first._server.name != second._server.name
        with pytest.raises(EnvBusyError, match="all 2 servers"):
            await make_env(ROW, urls=[url, other], wait_s=0.05).start()
        waiting = asyncio.ensure_future(third.start())
        await second.close()
        await waiting
        for env in (first, third):
            await env.close()


async def test_a_lost_world_is_a_failure_and_frees_its_server() -> None:
    async with serving_app(fake_app([])) as url:
        env = make_env(ROW, urls=url)
        await env.start()
        assert env._server is not None
        await env._server.send("POST", "/close", json={"task_id": ROW.extra["task_id"]})
        with pytest.raises(EnvError, match="HTTP 500"):
            await env.step(running("pass"))
        await env.close()
        again = make_env(ROW, urls=url, wait_s=0.05)
        await again.start()
    with pytest.raises(EnvUnavailableError, match="cannot be reached"):
        await again.step(running("pass"))
    await again.close()


def test_rows_are_tasks_of_the_data_and_wrong_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_AGENTIC_APPWORLD_URLS", raising=False)
    folder = tmp_path / "data" / "datasets"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("aaa_1\nbbb_2:tag\n\n")
    rows = make_rows(split="train", count=2, seed=0, root=str(tmp_path))
    assert {row.extra["task_id"] for row in rows} == {"aaa_1", "bbb_2"}
    with pytest.raises(ConfigError, match="count=3"):
        make_rows(split="train", count=3, seed=0, root=str(tmp_path))
    with pytest.raises(ConfigError, match="appworld download data"):
        make_rows(split="test", count=1, seed=0, root=str(tmp_path))
    with pytest.raises(ConfigError, match="VERL_AGENTIC_APPWORLD_URLS"):
        make_env(ROW)
    with pytest.raises(DataError, match="task_id"):
        make_env(EnvRow(prompt=()), urls="http://h")


async def test_a_lock_never_follows_a_link_that_somebody_has_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    url, target = "http://127.0.0.1:1", tmp_path / "precious"
    _, lock = await appworld._lease_of([url], wait_s=0)
    (path,) = tmp_path.rglob("*.lock")
    lock.close()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    target.write_text("data")
    path.unlink()
    path.symlink_to(target)
    with pytest.raises((EnvBusyError, OSError)):
        await appworld._lease_of([url], wait_s=0)
    assert target.read_text() == "data"
