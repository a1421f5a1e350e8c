"""A retrieval server with Search-R1's contract over a BM25 index; `http_retriever.py` has a client.

python -m verl_agentic.tools.search.search_server CORPUS_FOLDER --port 8000
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.errors import MissingDependencyError, SearchError
from verl_agentic.tools.search.local_retriever import local_retriever
from verl_agentic.tools.search.retriever import Passage, Retriever
from verl_agentic.tools.search.search_wire import ROUTE

try:
    from fastapi import FastAPI, HTTPException
    from pydantic import BaseModel, Field
except ImportError as cause:
    raise MissingDependencyError(
        f"serving searches needs fastapi and uvicorn, got {cause}; pip install 'verl-agentic[search,serve]'"
    ) from cause


class RetrieveRequest(BaseModel):
    """The body of `POST /retrieve`."""

    queries: list[str] = Field(max_length=4_096)
    topk: int | None = Field(default=None, ge=1, le=1_000)
    return_scores: bool = False


def make_app(retriever: Retriever, *, default_top_k: int = 3) -> FastAPI:
    """Returns the ASGI application.

    Args:
        retriever: to serve.
        default_top_k: passages of each query if a request has no `topk`.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await retriever.ready()
        yield

    app = FastAPI(title="verl-agentic search", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post(ROUTE)
    async def retrieve(request: RetrieveRequest) -> dict[str, Any]:
        try:
            results = await retriever.search(request.queries, top_k=request.topk or default_top_k)
        except SearchError as cause:
            raise HTTPException(503, str(cause)) from cause
        return {"result": [[_hit(passage, request) for passage in found] for found in results]}

    @app.get("/health")
    async def health() -> dict[str, str]:
        await retriever.ready()
        return {"status": "ok"}

    return app


def _hit(passage: Passage, request: RetrieveRequest) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if request.return_scores else document


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves a corpus folder until SIGINT or SIGTERM."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="verl_agentic.tools.search.search_server", description=main.__doc__)
    parser.add_argument("corpus", type=Path, help="folder with *.jsonl files, one passage per line")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; default: %(default)s")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)d")
    parser.add_argument("--top-k", type=int, default=3, help="passages per query without topk; default: %(default)d")
    args = parser.parse_args(arguments)
    app = make_app(local_retriever(args.corpus), default_top_k=args.top_k)
    uvicorn.run(app, host=args.host, port=args.port, access_log=False)


if __name__ == "__main__":
    main()
