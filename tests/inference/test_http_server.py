"""The HTTP face over real HTTP on loopback: ids in and out, texts, chats with tools, refusals, a client that goes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Service, answering

from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import SamplingParams
from verl_agentic.cpu.serving.http_server import Served, make_app

_TOOL = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs code.",
        "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    },
}
_USER = {"role": "user", "content": "What is 6*7?"}


@pytest.fixture(scope="module")
def served(tiny_model: Path, tiny_chat: tuple[Any, Any]) -> Iterator[Served]:
    tokenizer, codec = tiny_chat
    engine = InferenceEngine.from_pretrained(tiny_model)
    yield Served(engine=engine, tokenizer=tokenizer, chat=codec, name="tiny")
    asyncio.run(engine.close())


@pytest.fixture(scope="module")
def service(served: Served) -> Iterator[Service]:
    with answering(make_app(served)) as running:
        yield running


def post(service: Service, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/{path}", json={"model": "tiny", **body}, timeout=60)


def complete(service: Service, **body: Any) -> dict[str, Any]:
    response = post(service, "completions", **{"temperature": 0, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_model_is_listed_with_its_length(service: Service, served: Served) -> None:
    listed = httpx.get(f"{service.url}/v1/models").json()
    (model,) = listed["data"]
    assert (listed["object"], model["id"], model["max_model_len"]) == ("list", "tiny", served.engine.max_positions)
    health = httpx.get(f"{service.url}/health").json()
    assert (health["status"], health["model"], health["running"]) == ("ok", "tiny", 0.0)


async def test_ids_go_in_and_the_engines_own_ids_and_log_probs_come_out(service: Service, served: Served) -> None:
    ids = served.tokenizer.encode("What is 6*7?")
    expected = await served.engine.generate(ids, SamplingParams(temperature=0, max_tokens=9))
    body = await asyncio.to_thread(
        complete, service, prompt=ids, max_tokens=9, logprobs=0, return_token_ids=True, skip_special_tokens=False
    )
    (choice,) = body["choices"]
    assert choice["token_ids"] == expected.token_ids and choice["prompt_token_ids"] == ids
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected.log_probs, abs=1e-5)
    assert choice["text"] == served.tokenizer.decode(expected.token_ids)
    assert "".join(choice["logprobs"]["tokens"])[choice["logprobs"]["text_offset"][3] :] == "".join(
        choice["logprobs"]["tokens"][3:]
    )
    assert (choice["finish_reason"], choice["index"], body["object"]) == ("length", 0, "text_completion")
    assert body["usage"]["prompt_tokens"] == len(ids) and body["usage"]["completion_tokens"] == 9


def test_a_text_prompt_is_the_same_as_its_ids_and_ids_are_given_only_when_asked_for(
    service: Service, served: Served
) -> None:
    by_text = complete(service, prompt="What is 6*7?", max_tokens=5)["choices"][0]
    by_ids = complete(service, prompt=served.tokenizer.encode("What is 6*7?"), max_tokens=5)["choices"][0]
    assert by_text["text"] == by_ids["text"] != ""
    assert not {"token_ids", "prompt_token_ids"} & set(by_text) and by_text["logprobs"] is None


@pytest.mark.slow
def test_seeds_repeat_themselves_and_choices_differ(service: Service) -> None:
    sampled = {"prompt": "a", "max_tokens": 12, "temperature": 1.0, "n": 3, "seed": 5}
    texts = [choice["text"] for choice in complete(service, **sampled)["choices"]]
    assert texts == [choice["text"] for choice in complete(service, **sampled)["choices"]]
    assert len(set(texts)) == 3
    assert texts != [choice["text"] for choice in complete(service, **{**sampled, "seed": 6})["choices"]]
    assert complete(service, **sampled)["usage"]["completion_tokens"] == sum(
        c["token_ids"].__len__() for c in complete(service, **sampled, return_token_ids=True)["choices"]
    )


def test_a_stop_text_ends_the_text_before_it_or_after_it(service: Service) -> None:
    whole = complete(service, prompt="a", max_tokens=30)["choices"][0]["text"]
    stop = whole[6:9]
    at = whole.index(stop)
    cut = complete(service, prompt="a", max_tokens=30, stop=stop)["choices"][0]
    assert (cut["text"], cut["finish_reason"], cut["stop_reason"]) == (whole[:at], "stop", stop)
    kept = complete(service, prompt="a", max_tokens=30, stop=["@@", stop], include_stop_str_in_output=True)
    assert kept["choices"][0]["text"] == whole[: at + len(stop)]


def test_stop_ids_end_the_generation(service: Service) -> None:
    ids = complete(service, prompt="a", max_tokens=6, return_token_ids=True)["choices"][0]["token_ids"]
    first = ids.index(ids[3])
    cut = complete(service, prompt="a", max_tokens=6, stop_token_ids=[ids[3]], return_token_ids=True)["choices"][0]
    assert (cut["token_ids"], cut["finish_reason"]) == (ids[: first + 1], "stop")


async def test_a_chat_is_the_prompt_of_the_template(service: Service, served: Served) -> None:
    from verl_agentic.base.types import Message

    ids = await served.chat.encode_prompt([Message("user", "What is 6*7?")], [_TOOL])
    expected = await served.engine.generate(ids, SamplingParams(temperature=0, max_tokens=7))
    body = await asyncio.to_thread(
        lambda: post(
            service, "chat/completions", messages=[_USER], tools=[_TOOL], max_completion_tokens=7, temperature=0,
            logprobs=True, return_token_ids=True,
        ).json()
    )  # fmt: skip
    (choice,) = body["choices"]
    assert body["prompt_token_ids"] == ids and choice["token_ids"] == expected.token_ids
    assert [item["logprob"] for item in choice["logprobs"]["content"]] == pytest.approx(expected.log_probs, abs=1e-5)
    assert choice["message"]["role"] == "assistant" and choice["message"]["tool_calls"] == []
    assert choice["message"]["content"] == served.tokenizer.decode(expected.token_ids, skip_special_tokens=True)


class Says:
    """An engine that says a text, whatever it is asked."""

    max_positions = 1000

    def __init__(self, tokenizer: Any, text: str, finish_reason: str = "stop") -> None:
        self.tokenizer, self.text, self.finish_reason = tokenizer, text, finish_reason
        self.asked: list[tuple[list[int], SamplingParams]] = []

    def stats(self) -> dict[str, float]:
        return {}

    async def generate(self, prompt_ids: Any, params: SamplingParams) -> Any:
        from verl_agentic.cpu.inference.request import Generation

        self.asked.append((list(prompt_ids), params))
        return Generation(
            token_ids=self.tokenizer.encode(self.text), log_probs=None, finish_reason=self.finish_reason,  # type: ignore[arg-type]
            num_cached_tokens=0, weights_version=0,
        )  # fmt: skip


def say(tiny_chat: tuple[Any, Any], text: str, finish_reason: str = "stop", **body: Any) -> dict[str, Any]:
    """Returns the choice that a chat gets when the model says a text."""
    tokenizer, codec = tiny_chat
    engine: Any = Says(tokenizer, text, finish_reason)
    with answering(make_app(Served(engine=engine, tokenizer=tokenizer, chat=codec, name="tiny"))) as service:
        response = post(service, "chat/completions", **{"messages": [_USER], "tools": [_TOOL], **body})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def test_calls_become_tool_calls_whose_arguments_are_json(tiny_chat: tuple[Any, Any]) -> None:
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "print(\\"é\\")"}}\n</tool_call>'
    choice = say(tiny_chat, f"I compute.\n{call}\n{call}<|im_end|>")
    first, second = choice["message"]["tool_calls"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I compute.", "tool_calls")
    assert (first["type"], first["function"]["name"]) == ("function", "python") and first["id"] != second["id"]
    assert json.loads(first["function"]["arguments"]) == {"code": 'print("é")'}
    assert say(tiny_chat, call + "<|im_end|>")["message"]["content"] is None


def test_calls_with_wrong_arguments_are_calls_and_calls_that_cannot_be_read_stay_text(
    tiny_chat: tuple[Any, Any],
) -> None:
    wrong = '<tool_call>\n{"name": "nope", "arguments": {"x": 1}}\n</tool_call>'
    (call,) = say(tiny_chat, wrong + "<|im_end|>")["message"]["tool_calls"]
    assert call["function"] == {"name": "nope", "arguments": '{"x": 1}'}
    broken = '<tool_call>\n{"name": "python", "arguments": {"code": \n</tool_call>'
    choice = say(tiny_chat, broken + "<|im_end|>")
    assert (choice["message"]["tool_calls"], choice["message"]["content"]) == ([], broken)
    assert choice["finish_reason"] == "stop"


def test_without_tools_or_with_tool_choice_none_everything_is_text(tiny_chat: tuple[Any, Any]) -> None:
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'
    for body in ({"tools": None}, {"tool_choice": "none"}):
        message = say(tiny_chat, call + "<|im_end|>", **body)["message"]
        assert (message["content"], message["tool_calls"]) == (call, [])


def test_a_cut_call_and_a_cancelled_generation_say_so(tiny_chat: tuple[Any, Any]) -> None:
    assert say(tiny_chat, "I think", "length")["finish_reason"] == "length"
    assert say(tiny_chat, "I think", "aborted")["finish_reason"] == "abort"


def test_a_conversation_in_openais_form_reaches_the_template(tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, codec = tiny_chat
    engine: Any = Says(tokenizer, "42")
    call = {"id": "c1", "type": "function", "function": {"name": "python", "arguments": '{"code": "6*7"}'}}
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
        _USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    with answering(make_app(Served(engine=engine, tokenizer=tokenizer, chat=codec, name="tiny"))) as service:
        assert post(service, "chat/completions", messages=messages, tools=[_TOOL]).status_code == 200
    prompt = tokenizer.decode(engine.asked[0][0])
    assert "Be brief." in prompt and '"arguments": {"code": "6*7"}' in prompt
    assert "<tool_response>\n42\n</tool_response>" in prompt
    assert engine.asked[0][1].max_tokens is None, "whatever the context leaves"


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("completions", {"prompt": "a", "stream": True}, "stream is served as False only, got True"),
        ("completions", {"prompt": "a", "echo": True}, "echo is served as False only"),
        ("completions", {"prompt": "a", "logprobs": 5}, "logprobs: Input should be less than or equal to 1"),
        ("completions", {"prompt": ["a", "b"]}, "prompt"),
        ("completions", {"prompt": "a", "guided_json": {}}, "guided_json: Extra inputs are not permitted"),
        ("completions", {"prompt": "a", "temperature": -1}, "temperature"),
        ("completions", {"prompt": "a", "top_k": -5}, "top_k must be a whole number (at least -1), got -5"),
        ("completions", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("completions", {"prompt": []}, "a prompt must have 1 to"),
        ("completions", {"prompt": [10**6]}, "outside the vocabulary"),
        ("completions", {}, "prompt: Field required"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": [{"role": "robot", "content": "x"}]}, "unknown message role"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "must be texts"),
        ("chat/completions", {"messages": [_USER], "tool_choice": "required"}, "tool_choice must be auto or none"),
        ("chat/completions", {"messages": [_USER], "top_logprobs": 3}, "top_logprobs is served as 0 only"),
        ("chat/completions", {"messages": [_USER], "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_is_not_served_is_refused_by_name(service: Service, path: str, body: dict[str, Any], message: str) -> None:
    response = post(service, path, **body)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (400, "invalid_request_error", 400)
    assert message in error["message"]


def test_another_model_another_path_and_no_json_are_refused(service: Service) -> None:
    other = httpx.post(f"{service.url}/v1/completions", json={"model": "gpt", "prompt": "a"})
    assert other.status_code == 404 and "'gpt'" in other.text
    nowhere = httpx.post(f"{service.url}/v1/embeddings", json={})
    assert nowhere.status_code == 404 and "/v1/embeddings" in nowhere.text
    for content in (b"{", b"[1]", b"\xff"):
        kind = {"Content-Type": "application/json"}
        assert httpx.post(f"{service.url}/v1/completions", content=content, headers=kind).status_code == 400


def test_fields_that_are_null_are_left_out(service: Service) -> None:
    assert complete(service, prompt="a", max_tokens=2, stop=None, seed=None, logit_bias=None, user="me")["choices"]


def test_a_server_with_a_token_lets_in_who_shows_it(served: Served) -> None:
    import dataclasses

    with answering(make_app(dataclasses.replace(served, token="sesame"))) as service:
        url = f"{service.url}/v1/models"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer sesame"}).status_code == 200
        assert httpx.get(f"{service.url}/health").status_code == 200


def test_a_client_that_goes_frees_its_place(service: Service, served: Served) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{service.url}/v1/completions",
            json={"model": "tiny", "prompt": "a", "max_tokens": 4000, "ignore_eos": True},
            timeout=0.3,
        )
    deadline = time.monotonic() + 5
    while served.engine.stats()["running"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert served.engine.stats()["running"] == 0


async def test_an_engine_that_has_ended_is_answered_with_503(tiny_model: Path, tiny_chat: tuple[Any, Any]) -> None:
    engine = InferenceEngine.from_pretrained(tiny_model)
    await engine.close()
    with answering(make_app(Served(engine=engine, tokenizer=tiny_chat[0], chat=tiny_chat[1], name="tiny"))) as service:
        response = await asyncio.to_thread(post, service, "completions", prompt="a")
    assert response.status_code == 503 and response.json()["error"]["type"] == "server_error"


def test_only_allowed_ids_come_out(service: Service, served: Served) -> None:
    names = [served.tokenizer.encode(name, add_special_tokens=False)[0] for name in ("search", "python")]
    body = {"prompt": "What is 6*7?", "max_tokens": 4, "temperature": 1.0, "return_token_ids": True, "ignore_eos": True}
    sampled = {
        token
        for seed in range(4)
        for token in complete(service, **body, seed=seed, allowed_token_ids=names)["choices"][0]["token_ids"]
    }
    assert sampled == set(names)
    refused = post(service, "completions", **body, allowed_token_ids=[10**7])
    assert refused.status_code == 400 and "allowed_token_ids" in refused.text
