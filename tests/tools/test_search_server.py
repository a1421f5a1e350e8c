"""The retrieval server: Search-R1's contract over an index, through real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import answering
from tiny_bert import save_tiny_bert

from verl_agentic.base.errors import SearchError
from verl_agentic.tools.search.bm25 import Bm25Index
from verl_agentic.tools.search.http_retriever import HttpConfig, HttpRetriever
from verl_agentic.tools.search.local_retriever import LocalRetriever
from verl_agentic.tools.search.retriever import Passage
from verl_agentic.tools.search.search_server import make_app

PASSAGES = [Passage(id=str(i), title=f"Town {i}", text=f"Town {i} lies on the river.") for i in range(9)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    retriever = LocalRetriever(lambda: Bm25Index.from_passages(PASSAGES))
    with answering(make_app(retriever, default_top_k=4)) as service:
        yield service.url


def ask(url: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/retrieve", json=body, timeout=30)


def test_a_request_with_scores_is_answered_as_search_r1_does(url: str) -> None:
    answer = ask(url, queries=["town 3", "nobody"], topk=2, return_scores=True).json()
    (first, second), nothing = answer["result"]
    assert first["document"] == {"id": "3", "contents": '"Town 3"\nTown 3 lies on the river.'}
    assert first["score"] > second["score"] > 0 and nothing == []


def test_without_scores_the_documents_stand_alone_and_topk_has_a_default(url: str) -> None:
    answer = ask(url, queries=["town 3"]).json()
    assert [document["id"] for document in answer["result"][0]] == ["3", "0", "1", "2"]


@pytest.mark.parametrize("body", [{}, {"queries": "town"}, {"queries": [1]}, {"queries": ["a"], "topk": 0}])
def test_what_is_no_request_is_refused(url: str, body: dict[str, Any]) -> None:
    assert ask(url, **body).status_code == 422


def test_its_health_can_be_asked_for(url: str) -> None:
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}


async def test_client_and_server_give_what_the_index_gives(url: str) -> None:
    retriever = HttpRetriever(HttpConfig(url=url))
    try:
        queries = ["town 3", "nobody", "river 5"]
        results = await asyncio.gather(*(retriever.search([query], top_k=2) for query in queries))
    finally:
        await retriever.close()
    index = Bm25Index.from_passages(PASSAGES)
    assert [found for (found,) in results] == [index.search(query, top_k=2) for query in queries]


class Broken:
    """A retriever whose index is gone."""

    async def ready(self) -> None: ...

    async def search(self, queries: Sequence[str], *, top_k: int) -> list[list[Passage]]:
        raise SearchError("the index is gone")


def test_a_retriever_that_fails_is_no_empty_result() -> None:
    with answering(make_app(Broken())) as service:
        response = ask(service.url, queries=["a"])
    assert (response.status_code, response.json()) == (503, {"detail": "the index is gone"})


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "best"), [("bm25", "3"), ("dense", "0")])  # the tiny model reads no digits: all tie
def test_a_corpus_can_be_served_from_the_command_line(tmp_path: Path, kind: str, best: str) -> None:
    model = save_tiny_bert(tmp_path / "model")
    records = [{"id": p.id, "title": p.title, "text": p.text} for p in PASSAGES]
    (tmp_path / "passages.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    command = [sys.executable, "-m", "verl_agentic.tools.search.search_server", str(tmp_path), "--port", str(port)]
    env = {**os.environ, "VERL_AGENTIC_SEARCH_TOKEN": "sesame"}
    command += ["--top-k", "1", "--retriever", kind, "--embedding-model", str(model)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=env)
    try:
        deadline = time.monotonic() + 240  # importing torch takes long on a busy machine
        while True:
            try:
                answer = ask(f"http://anyone:sesame@127.0.0.1:{port}", queries=["town 3"]).json()
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert [document["id"] for document in answer["result"][0]] == [best]
