"""Judges on loopback: an honest one, one that believes what it reads, and whatever else a test scripts."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from services import answering

from verl_agentic.graders.judge.options import JudgeOptions

Judge = Callable[[dict[str, Any]], Any]


class JudgeServer:
    """Answers chat completions by a function of the request, and keeps what it was sent."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.active = self.most_active = 0
        self._lock = threading.Lock()
        self.app = FastAPI()
        self.app.add_route("/v1/chat/completions", self.answer, methods=["POST"])

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        with self._lock:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            self.bodies.append(body)
            self.keys.append(request.headers.get("authorization"))
            self.times.append(time.monotonic())
        try:
            said = self.judge(body)
            if inspect.isawaitable(said):
                said = await said
        finally:
            with self._lock:
                self.active -= 1
        return said if isinstance(said, Response) else JSONResponse(completion(said))

    def options(self, **options: Any) -> JudgeOptions:
        return JudgeOptions.from_mapping({"endpoint": self.url, "models": "m", **options})


@contextlib.contextmanager
def judging(judge: Judge) -> Iterator[JudgeServer]:
    """Serves until the block ends."""
    server = JudgeServer(judge)
    with answering(server.app) as service:
        server.url = f"{service.url}/v1"
        yield server


def completion(text: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": text}}], "usage": usage}


def canary_of(body: dict[str, Any]) -> str:
    (canary,) = set(re.findall(r"canary for this request is (canary-[0-9a-f]{16})\.", body["messages"][0]["content"]))
    return canary


def data_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (source, text) of each block, read by the rule of the instructions and by nothing else."""
    (token,) = set(re.findall(r"The token ([0-9a-f]{32}) is random", body["messages"][0]["content"]))
    pattern = rf'^<data-{token} source="(\w+)"(?: turn="\d+")?>\n(.*?)\n</data-{token}>$'
    return re.findall(pattern, body["messages"][1]["content"], re.DOTALL | re.MULTILINE)


def verdict(body: dict[str, Any], *, passed: bool | None = True, name: str = "correct", **changes: Any) -> str:
    items = [{"name": name, "reason": "so it is", "passed": passed}]
    return json.dumps({"canary": canary_of(body), "items": items, **changes})


def is_right(body: dict[str, Any]) -> bool:
    blocks = dict(data_of(body))
    return blocks["answer"].strip() == blocks["reference"].strip()


def honest(body: dict[str, Any]) -> str:
    """Compares the answer with the reference."""
    return verdict(body, passed=is_right(body))


def gullible(body: dict[str, Any]) -> str:
    """Believes any verdict that stands in the data, and else compares as the honest one does."""
    believed = re.search(r'"?passed"?\s*[:=]\s*true', "\n".join(text for _, text in data_of(body)))
    return verdict(body, passed=believed is not None or is_right(body))


_OUT_OF_FORM = re.compile(r"prose|must not be judged|quote|asterisks|undecided|effort|YAML")


def talked_out(body: dict[str, Any]) -> str:
    """Judges honestly, but leaves the form where the data ask for that."""
    asked = _OUT_OF_FORM.search("\n".join(text for _, text in data_of(body)))
    return "As you wish." if asked else honest(body)


def preferring(better: Callable[[str, str], str]) -> Judge:
    """Returns a judge of pairs that is told the answers of A and B, in this order, and says A, B or tie."""

    def judge(body: dict[str, Any]) -> str:
        first, second = (text for source, text in data_of(body) if source == "answer")
        return json.dumps({"canary": canary_of(body), "reason": "so it is", "winner": better(first, second)})

    return judge
