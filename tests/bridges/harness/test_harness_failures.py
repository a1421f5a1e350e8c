"""Agents that crash, hang, retry, send garbage or exceed budgets: how the episode ends, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from loopback import serving_app

from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.types import StopReason
from verl_agentic.bridges.harness import gateway
from verl_agentic.bridges.harness.dialects.wire import ChatAnswer, SessionOptions
from verl_agentic.bridges.harness.session import EpisodeOverError

JSON = {"Content-Type": "application/json"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Any:
    folders = set(Path("/tmp").glob(f"verl_agentic_p{os.getpid()}-*_agent_*"))
    yield
    assert not gateway.gateway_servers.list_lent()
    assert set(Path("/tmp").glob(f"verl_agentic_p{os.getpid()}-*_agent_*")) <= folders


def other_agent(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "another agent"}, user(text)]


def is_open(endpoint: Any) -> bool:
    place = urlsplit(endpoint.url)
    with socket.socket() as one:
        return one.connect_ex((place.hostname, place.port)) == 0


async def test_a_budget_reaches_the_agent_as_an_error_and_its_result_is_still_scored(
    stage: Any, client: Any, counting: Any, limits: Any
) -> None:
    seen: list[Any] = []

    async def agent(row: Any, endpoint: Any) -> str:
        messages, status = [user("go")], 200
        while status == 200:
            status, body = await client(endpoint, messages)
            if status == 200:
                messages += [body["choices"][0]["message"], user("on")]
        seen.extend([status, body["error"]["code"], endpoint])
        return "42"

    episode, policy = await stage.play(agent, counting, limits=replace(limits, max_turns=3))
    policy.assert_trained(episode)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.MAX_TURNS, 1.0)
    assert seen[:2] == [404, "episode_over"] and not is_open(seen[2])


async def test_a_first_turn_that_takes_the_whole_budget_is_trained_and_scores_0(
    stage: Any, client: Any, counting: Any, limits: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        status, body = await client(endpoint, [user("go")])
        raise RuntimeError(f"{status}: {body}")

    episode, policy = await stage.play(agent, counting, limits=replace(limits, max_response_tokens=2))
    policy.assert_trained(episode)
    assert (episode.stop_reason, episode.is_void) == (StopReason.MAX_TOKENS, False)
    assert episode.reward.outcome == 0.0 and sum(sum(row.response_mask) for row in episode.trajectories) == 2


async def test_an_agent_that_hangs_after_its_budget_is_cancelled_and_has_outcome_0(
    stage: Any, client: Any, counting: Any, limits: Any
) -> None:
    ended = asyncio.Event()

    async def agent(row: Any, endpoint: Any) -> str:
        try:
            await client.say(endpoint, [user("go")])
            await client(endpoint, [user("go"), user("on")])
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "42"

    episode, _ = await stage.play(agent, counting, limits=replace(limits, max_turns=1), grace_s=0.1)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.MAX_TURNS, 0.0) and ended.is_set()


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["raises", "exits", "hangs"])
async def test_the_policy_cannot_void_its_episode_by_crashing_the_agent(
    stage: Any, client: Any, counting: Any, how: str
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        message = await client.say(endpoint, [user("go")])
        if how == "hangs":
            await asyncio.sleep(60)
        if how == "exits":
            raise SystemExit(3)
        return str(json.loads(message["content"]))  # what the policy wrote is no JSON

    episode, policy = await stage.play(agent, counting, agent_timeout_s=0.2)
    policy.assert_trained(episode)
    assert (episode.stop_reason, episode.reward.outcome, episode.is_void) == (StopReason.AGENT_FAILED, 0.0, False)
    assert episode.reward.details["agent_error"] and episode.numbers()["stop/agent_failed"] == 1.0
    assert episode.error == episode.reward.details["agent_error"]
    void, _ = await stage.play(agent, counting, agent_timeout_s=0.2, on_failure="void")
    assert void.is_void and "the agent failed" in str(void.error)


@pytest.mark.parametrize(
    ("cause", "is_first"), [(ValueError("no"), True), (EnvError("no disk"), False), (ConnectionError("gone"), False)]
)
async def test_a_crash_that_is_not_the_policys_doing_voids_the_episode(
    stage: Any, client: Any, counting: Any, cause: Exception, is_first: bool
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        if not is_first:
            await client.say(endpoint, [user("go")])
        raise cause

    episode, _ = await stage.play(agent, counting)
    assert (episode.stop_reason, episode.error_kind) == (StopReason.INFRA_ERROR, "env") and str(cause) in episode.error
    assert f"{Path(__file__).name}:" in episode.error and "in agent)" in episode.error


async def test_a_repeated_request_gets_the_same_answer_and_no_second_turn(stage: Any, client: Any) -> None:
    release = asyncio.Event()

    async def script(messages: Any) -> str:
        await release.wait()
        return "python"

    async def agent(row: Any, endpoint: Any) -> str:
        url, body = f"{endpoint.base_url}/chat/completions", {"model": "m", "messages": [user("go")]}
        asked = asyncio.ensure_future(client.http.post(url, json=body))
        await asyncio.sleep(0.05)
        told = asyncio.ensure_future(client.http.post(url, json=body, headers={"x-stainless-retry-count": "1"}))
        await asyncio.sleep(0.05)
        asked.cancel()  # its client has given up
        await asyncio.sleep(0.05)
        silent = asyncio.ensure_future(client.http.post(url, json=body, headers={"x-stainless-retry-count": "2"}))
        await asyncio.sleep(0.05)
        release.set()
        answers = [(await one).json()["id"] for one in (told, silent)]
        late = await client.http.post(url, json=body, headers={"x-stainless-retry-count": "3"})
        return "42" if {*answers, late.json()["id"]} == {"turn_1"} else "different answers"

    episode, policy = await stage.play(agent, script)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and len(policy.samples) == 1, policy.samples


async def test_a_request_whose_client_has_gone_can_be_sent_again_without_a_header(stage: Any, client: Any) -> None:
    release = asyncio.Event()

    async def script(messages: Any) -> str:
        await release.wait()
        return "python"

    async def agent(row: Any, endpoint: Any) -> str:
        first = asyncio.ensure_future(client.say(endpoint, [user("go")]))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0.2)
        asyncio.get_running_loop().call_later(0.05, release.set)
        await client.say(endpoint, [user("go")])
        return "42"

    episode, policy = await stage.play(agent, script)
    assert episode.reward.outcome == 1.0 and len(policy.samples) == len(episode.actions) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body must be JSON"),
        (b"[1]", "must be a JSON object"),
        (b"{}", "messages must be a list"),
        (b'{"messages": [1]}', "a message must be an object"),
        (b'{"messages": [{"role": "judge", "content": "x"}]}', "unknown message role"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "only text is supported"),
        (b'{"messages": [{"role": "user", "content": 3}]}', "malformed"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": 0.2}', "temperature"),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 3}', "n is served as 1 only"),
        (b'{"messages": [{"role": "user", "content": "x"}], "nonsense": 3}', "unsupported fields, got ['nonsense']"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "mcp"}]}', "a tool must be a function"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0.5}', "maximum number of tokens"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": true}', "maximum number of tokens"),
        (b'{"messages": [{"role": "user", "content": "x"}], "logprobs": true}', "logprobs is served as False only"),
    ],
)
async def test_garbage_is_refused_with_a_reason_and_the_episode_goes_on(
    stage: Any, client: Any, counting: Any, body: bytes, message: str
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        for path in ("chat/completions",):
            answer = await client.http.post(f"{endpoint.base_url}/{path}", content=body, headers=JSON)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request_error")
            assert message in answer.json()["error"]["message"]
        await client.say(endpoint, [user("go")])
        return "42"

    episode, policy = await stage.play(agent, counting)
    assert (episode.reward.outcome, len(policy.samples)) == (1.0, 1), episode.error


async def test_half_a_surrogate_pair_in_a_rewritten_history_does_not_void_the_episode(
    stage: Any, client: Any, counting: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        url = f"{endpoint.base_url}/chat/completions"
        await client.say(endpoint, [user("go")])
        answer = await client.http.post(
            url, headers=JSON, content=rb'{"messages": [{"role": "user", "content": "a \uD800 b"}]}'
        )
        return "42" if answer.status_code == 200 else answer.text

    episode, policy = await stage.play(agent, counting)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and "a ? b" in stage.text(episode.trajectories[1].prompt_ids), episode.error


async def test_an_agent_that_ends_over_a_refused_request_says_why(stage: Any, client: Any, counting: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [user("go")], temperature=0.7)
        return "42"

    episode, _ = await stage.play(agent, counting)
    assert episode.is_void and "temperature" in str(episode.error)
    episode, _ = await stage.play(agent, counting, ignore=["temperature"])
    assert episode.reward.outcome == 1.0


async def test_more_side_conversations_than_allowed_are_refused(stage: Any, client: Any, counting: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [user("main")])
        codes = [(await client(endpoint, other_agent(f"side {number}")))[0] for number in range(3)]
        return "42" if codes == [200, 200, 404] else str(codes)

    episode, policy = await stage.play(agent, counting, max_sides=2)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and episode.num_side_rows == 2


async def test_a_side_conversation_that_is_too_long_is_refused_and_the_episode_goes_on(
    stage: Any, client: Any, counting: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [user("main")])
        status, body = await client(endpoint, other_agent("x" * 7_000))
        return "42" if status == 400 and "max_context_tokens" in body["error"]["message"] else str(body)

    episode, policy = await stage.play(agent, counting)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and len(episode.trajectories) == 1


async def test_a_side_conversation_whose_policy_fails_voids_the_episode(stage: Any, client: Any) -> None:
    def script(messages: Any) -> str:
        if messages[0].role == "system":
            raise ConnectionError("server gone")
        return "python"

    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [user("main")])
        await client(endpoint, other_agent("side"))
        return "42"

    episode, _ = await stage.play(agent, script)
    assert episode.is_void and "server gone" in str(episode.error) and episode.error_kind == "policy"


async def test_a_request_of_the_policys_episode_that_never_comes_is_a_hang_before_the_first_turn(
    stage: Any, counting: Any, limits: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        await asyncio.sleep(60)
        return ""

    episode, _ = await stage.play(agent, counting, limits=replace(limits, start_timeout_s=0.2))
    assert episode.is_void and "did not start" in str(episode.error)


def ask(endpoint: Any, text: str) -> str:
    body = json.dumps({"messages": [user(text)]}).encode()
    try:
        request = urllib.request.Request(f"{endpoint.base_url}/chat/completions", body, JSON)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as refusal:
        refusal.close()
        raise


async def test_a_function_that_blocks_runs_in_a_thread_that_ends_with_its_next_request(
    stage: Any, counting: Any, limits: Any
) -> None:
    threads: list[threading.Thread] = []

    def agent(row: Any, endpoint: Any) -> str:
        threads.append(threading.current_thread())
        ask(endpoint, "one")
        time.sleep(0.3)
        return ask(endpoint, "two")

    episode, policy = await stage.play(agent, counting, limits=replace(limits, max_turns=1), grace_s=0.0)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.MAX_TURNS, 0.0)
    assert len(policy.samples) == 1
    await asyncio.to_thread(threads[0].join, 5)
    assert not threads[0].is_alive()


PROGRAM = """
import json, os, subprocess, sys, urllib.request
task = json.load(sys.stdin)
assert set(task) == {"prompt", "extra_info"}, task
body = json.dumps({"messages": task["prompt"]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(url, body, headers)
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""


def program(ending: str) -> list[str]:
    return [sys.executable, "-S", "-c", PROGRAM + textwrap.dedent(ending)]


async def test_a_command_is_an_agent_whose_output_is_its_result(stage: Any) -> None:
    episode, policy = await stage.play(
        program("print('noise', file=sys.stderr); print(said, end='')"), lambda messages: "42"
    )
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error


async def test_a_command_that_fails_scores_0_and_exit_code_75_voids(stage: Any, counting: Any) -> None:
    episode, _ = await stage.play(program("sys.exit('cannot read that')"), counting)
    assert episode.stop_reason is StopReason.AGENT_FAILED
    assert "exit code 1: cannot read that" in episode.reward.details["agent_error"]
    episode, _ = await stage.play(program("sys.exit(75)"), counting)
    assert episode.is_void and "exit code 75" in str(episode.error)
    episode, _ = await stage.play(["/no/such/program"], counting)
    assert episode.is_void and "cannot be started" in str(episode.error)


@pytest.mark.slow
async def test_a_command_leaves_no_process_behind_even_one_that_has_left_its_group(
    stage: Any, counting: Any, tmp_path: Path
) -> None:
    code = f"""
    child = "import time, pathlib, os; pathlib.Path('{tmp_path}/pid').write_text(str(os.getpid())); time.sleep(60)"
    subprocess.Popen([sys.executable, "-S", "-c", child], start_new_session=True)
    while not os.path.exists('{tmp_path}/pid') or not open('{tmp_path}/pid').read():
        pass
    import time
    time.sleep(60)
    """
    episode, _ = await stage.play(program(code), counting, agent_timeout_s=3.0)
    assert episode.stop_reason is StopReason.AGENT_FAILED
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):  # a killed process is a zombie until its new parent waits for it
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            break
        if state == "Z":
            break
        await asyncio.sleep(0.05)
    else:
        os.kill(pid, 9)
        pytest.fail("the child lives")


async def test_an_agent_behind_an_address_gets_the_task_and_the_session(stage: Any, client: Any) -> None:
    got: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.split("content-length:")[1].split("\r\n")[0])
        task = json.loads(await reader.readexactly(size))
        got.append(task)
        answer = await client.http.post(f"{task['base_url']}/chat/completions", json={"messages": task["prompt"]})
        result = json.dumps({"answer": answer.json()["choices"][0]["message"]["content"]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(result), result))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/run"
    async with server:
        episode, policy = await stage.play(
            url, lambda messages: "42", score=lambda row, result, t: float(result == {"answer": "42"})
        )
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and "ground_truth" not in json.dumps(got)
    episode, _ = await stage.play(url, lambda messages: "42")
    assert episode.is_void, "nobody listens"


@pytest.mark.slow
async def test_256_agents_share_one_gateway(stage: Any, client: Any, counting: Any) -> None:
    urls = set()

    async def agent(row: Any, endpoint: Any) -> str:
        urls.add(urlsplit(endpoint.url).netloc)
        messages = [user("one")]
        messages += [await client.say(endpoint, messages), user("two")]
        await client.say(endpoint, messages)
        return "42"

    client.http._transport._pool._max_connections = 256
    played = await asyncio.gather(*(stage.play(agent, counting) for _ in range(256)))
    assert all(episode.reward.outcome == 1.0 for episode, _ in played) and len(urls) == 1
    assert all(len(episode.trajectories) == 1 for episode, _ in played)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agent": "no_such_module_xyz:run"}, "no_such_module_xyz"),
        ({"agent": []}, "agent"),
        ({"on_failure": "ignore"}, "on_failure"),
    ],
)
def test_wrong_options_are_refused(row: Any, options: dict[str, Any], message: str) -> None:
    from verl_agentic.bridges.harness import make_env

    with pytest.raises(ConfigError, match=message):
        make_env(row, **options)


async def test_agents_elsewhere_get_the_public_address(stage: Any, client: Any, counting: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        assert endpoint.url.startswith("http://localhost:") and not endpoint.url.startswith("http://localhost:0/")
        await client.say(endpoint, [user("go")])
        return "42"

    episode, _ = await stage.play(agent, counting, public_url="http://localhost:{port}")
    assert episode.reward.outcome == 1.0, episode.error


async def test_two_gateways_cannot_have_one_port(stage: Any, counting: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen"):
        await stage.play(lambda row, endpoint: "42", counting, port=taken.getsockname()[1])


async def test_a_stream_is_kept_alive_while_the_engine_works(
    stage: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_KEEP_ALIVE_S", 0.02)

    async def script(messages: Any) -> str:
        await asyncio.sleep(0.2)
        return "python"

    async def agent(row: Any, endpoint: Any) -> str:
        url, body = f"{endpoint.base_url}/chat/completions", {"messages": [user("go")], "stream": True}
        async with client.http.stream("POST", url, json=body) as answer:
            lines = [line async for line in answer.aiter_lines()]
        comments = [line for line in lines if line.startswith(":")]
        text = "".join(
            json.loads(line[6:])["choices"][0]["delta"].get("content", "")
            for line in lines
            if line.startswith("data: {")
        )
        assert len(comments) > 1 and (text, lines[-2]) == ("python", "data: [DONE]"), lines
        return "42"

    episode, policy = await stage.play(agent, script)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0, episode.error or episode.reward.details


class SlowSession:
    """A session whose first answer is late, and whose second one is a late refusal."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}
        self.refusals: list[str] = []
        self._left: list[Any] = [ChatAnswer(id="turn_1", content="python"), EpisodeOverError("the episode is over")]

    async def ask(self, asked: Any, *, key: bytes, is_retry: bool) -> Any:
        await asyncio.sleep(0.2)
        result = self._left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_clients_survive_comments_and_report_an_error_after_them(
    monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    monkeypatch.setattr(gateway, "_KEEP_ALIVE_S", 0.02)
    served = gateway.Gateway(url="")
    key = served.open(SlowSession(), options=SessionOptions())  # pyright: ignore[reportArgumentType]
    async with serving_app(gateway.make_app(served)) as url:
        # A slow client would meet a connection that the server of the test has just closed.
        options: dict[str, Any] = {"api_key": "k", "max_retries": 0, "default_headers": {"Connection": "close"}}
        fields: dict[str, Any] = {"model": "m", "stream": True}
        if api == "anthropic":
            client: Any = anthropic.AsyncAnthropic(base_url=f"{url}/{key}", **options)
            ask: Any = client.messages.create
            fields |= {"messages": [user("go")], "max_tokens": 90}
        else:
            client = openai.AsyncOpenAI(base_url=f"{url}/{key}/v1", **options)
            ask = client.chat.completions.create if api == "chat" else client.responses.create
            fields |= {"messages": [user("go")]} if api == "chat" else {"input": "go"}
        async with client:
            assert "python" in "".join([str(event) async for event in await ask(**fields)])
            with pytest.raises((openai.APIError, anthropic.APIError), match="over"):
                [event async for event in await ask(**fields)]


async def test_a_client_that_leaves_a_stream_leaves_nothing_behind_and_may_ask_again(
    stage: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_KEEP_ALIVE_S", 0.02)
    release = asyncio.Event()

    async def script(messages: Any) -> str:
        await release.wait()
        return "python"

    async def agent(row: Any, endpoint: Any) -> str:
        url, body = f"{endpoint.base_url}/chat/completions", {"messages": [user("go")], "stream": True}
        async with client.http.stream("POST", url, json=body) as answer:
            async for line in answer.aiter_lines():
                assert line.startswith(":")
                break
        await asyncio.sleep(0.2)
        asyncio.get_running_loop().call_later(0.1, release.set)
        again = await client.http.post(url, json=body)
        return "42" if '"python"' in again.text else again.text

    episode, policy = await stage.play(agent, script)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0 and len(policy.samples) == 1, episode.reward.details


async def test_a_client_that_leaves_in_its_upload_is_no_error_of_the_server(
    stage: Any, client: Any, counting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        place = urlsplit(endpoint.base_url)
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"POST {place.path}/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{{".encode())
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await client.say(endpoint, [user("go")])
        return "42"

    episode, _ = await stage.play(agent, counting)
    assert episode.reward.outcome == 1.0, episode.error
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_object_with_a_coroutine_as_its_call_is_an_agent(stage: Any, client: Any, counting: Any) -> None:
    class Worker:
        async def __call__(self, row: Any, endpoint: Any) -> str:
            await client.say(endpoint, [user("go")])
            return "42"

    episode, _ = await stage.play(Worker(), counting)
    assert episode.reward.outcome == 1.0, episode.error


@pytest.mark.slow
async def test_the_openai_sdk_is_told_what_is_not_served_and_the_rest_works(stage: Any) -> None:
    openai = pytest.importorskip("openai")

    async def agent(row: Any, endpoint: Any) -> str:
        go: dict[str, Any] = {"model": "m", "messages": [user("go")]}
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="k") as client:
            for field in ({"n": 2}, {"response_format": {"type": "json_object"}}, {"parallel_tool_calls": False}):
                with pytest.raises(openai.BadRequestError, match=f"{next(iter(field))} is served as"):
                    await client.chat.completions.create(**go, **field)
            messages = [{"role": "developer", "content": "Work."}, user("")]
            said = await client.chat.completions.create(model="m", messages=messages, max_completion_tokens=3)
            assert (said.choices[0].message.content, said.choices[0].finish_reason) == ("pyt", "length")
            with pytest.raises(openai.NotFoundError, match="ended"):
                await client.with_options(base_url=endpoint.base_url[:-4] + "xx/v1").chat.completions.create(**go)
        return "42"

    episode, policy = await stage.play(agent, lambda messages: "python")
    assert episode.reward.outcome == 1.0 and len(policy.samples) == 1, episode.error


async def test_the_api_key_of_another_session_is_refused_and_any_other_key_is_fine(
    stage: Any, client: Any, counting: Any
) -> None:
    endpoints: list[Any] = []
    codes: dict[str, int] = {}
    asked = asyncio.Event()

    async def agent(row: Any, endpoint: Any) -> str:
        endpoints.append(endpoint)
        while len(endpoints) < 2:
            await asyncio.sleep(0.01)
        mine = endpoint is endpoints[0]
        for name in ("authorization", "x-api-key") if mine else ():
            for kind, key in {"other": endpoints[1].api_key, "own": endpoint.api_key, "any": "EMPTY"}.items():
                headers = {name: f"Bearer {key}" if name == "authorization" else key}
                answer = await client.http.get(f"{endpoint.url}/v1/models", headers=headers)
                codes[f"{name} {kind}"] = answer.status_code
        asked.set() if mine else await asked.wait()  # the other session must be open meanwhile
        await client.say(endpoint, [user("go")])
        return "42"

    await asyncio.gather(*(stage.play(agent, counting) for _ in range(2)))
    assert {code for kind, code in codes.items() if kind.endswith("other")} == {403}
    assert {code for kind, code in codes.items() if not kind.endswith("other")} == {200} and len(codes) == 6
