"""A retrieval server with Search-R1's contract over an index; `http_retriever.py` has a client.

python -m verl_agentic.tools.search.search_server CORPUS_FOLDER --port 8000

Clients send the token as bearer token, or as password of the URL: `http://x:TOKEN@HOST:PORT`, which Search-R1's client
understands, too.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError, SearchError
from verl_agentic.tools.search.local_retriever import KINDS, local_retriever
from verl_agentic.tools.search.retriever import Passage, Retriever
from verl_agentic.tools.search.search_wire import ROUTE, TOKEN_VARIABLE, URL_VARIABLE
from verl_agentic.web.listening.listening_options import add_listening_options, listen, print_use, token_of
from verl_agentic.web.listening.listening_socket import url_of
from verl_agentic.web.listening.request_guard import RequestGuard, require_token

with needs_extra("search,serve", what="serving searches"):
    from fastapi import FastAPI, HTTPException
    from pydantic import BaseModel, Field


_MAX_QUERY_CHARS = 16_384
_MAX_REQUEST_BYTES = 16 * 2**20


class RetrieveRequest(BaseModel):
    """The body of `POST /retrieve`."""

    queries: list[Annotated[str, Field(max_length=_MAX_QUERY_CHARS)]] = Field(max_length=4_096)
    topk: int | None = Field(default=None, ge=1, le=1_000)
    return_scores: bool = False


def make_app(retriever: Retriever, *, default_top_k: int = 3, token: str = "") -> FastAPI:
    """Returns the ASGI application.

    Args:
        retriever: to serve.
        default_top_k: passages of each query if a request has no `topk`.
        token: required token; empty: none.
    """
    app = FastAPI(title="verl-agentic search", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(RequestGuard, authorize=require_token(token), max_body_bytes=_MAX_REQUEST_BYTES)

    @app.post(ROUTE)
    async def retrieve(request: RetrieveRequest) -> dict[str, Any]:
        try:
            results = await retriever.search(request.queries, top_k=request.topk or default_top_k)
        except SearchError as cause:
            raise HTTPException(503, str(cause)) from cause
        return {"result": [[_format_hit(passage, request) for passage in passages] for passages in results]}

    @app.get("/health")
    async def health() -> dict[str, str]:
        await retriever.ready()
        return {"status": "ok"}

    return app


def _format_hit(passage: Passage, request: RetrieveRequest) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if request.return_scores else document


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves a corpus folder until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="verl_agentic.tools.search.search_server", description=main.__doc__)
    parser.add_argument("corpus", type=Path, help="folder with *.jsonl files, one passage per line")
    add_listening_options(parser, port=8000, token_variable=TOKEN_VARIABLE)
    parser.add_argument("--top-k", type=int, default=3, help="passages per query without topk; default: %(default)d")
    parser.add_argument("--retriever", choices=KINDS, default="bm25", help="how to search; default: %(default)s")
    parser.add_argument("--embedding-model", default="minilm", metavar="NAME", help="of dense and hybrid: a model of "
                        "`verl-agentic model fetch`, or a folder; default: %(default)s")  # fmt: skip
    args = parser.parse_args(arguments)
    try:
        token, is_made = token_of(args, token_variable=TOKEN_VARIABLE)
        listening = listen(args)
    except ConfigError as error:
        parser.error(str(error))
    with listening:
        asyncio.run(_serve_corpus(args, listening, token=token, is_made=is_made))


async def _serve_corpus(args: argparse.Namespace, listening: socket.socket, *, token: str, is_made: bool) -> None:
    from verl_agentic.web.listening.guarded_server import GuardedServer

    retriever = local_retriever(args.corpus, kind=args.retriever, embedding_model=args.embedding_model)
    await retriever.ready()
    url = url_of(listening)
    print(f"serving {args.corpus} at {url}", flush=True)
    print_use(f"{URL_VARIABLE}={url} COMMAND", token=token, token_variable=TOKEN_VARIABLE, is_made=is_made)
    await GuardedServer(make_app(retriever, default_top_k=args.top_k, token=token)).serve([listening])


if __name__ == "__main__":
    main()
