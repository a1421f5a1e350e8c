"""Commands that serve: their token, the command that they print, and clients that hold all connections."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

_CODE = "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"
_VARIABLES = ("VERL_AGENTIC_ENV_TOKEN", "VERL_AGENTIC_SANDBOX_TOKEN", "VERL_AGENTIC_SEARCH_TOKEN")


@contextlib.contextmanager
def serving(command: list[str], errors: Path, **options: Any) -> Iterator[list[str]]:
    """Runs a command; yields its two first lines."""
    environment = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    options = {"stdout": subprocess.PIPE, "text": True, "env": environment, **options}
    command = [sys.executable, *command, "--port", "0"]
    with errors.open("w") as log, subprocess.Popen(command, stderr=log, **options) as process:
        try:
            assert process.stdout is not None
            yield [process.stdout.readline(), process.stdout.readline()]
        finally:
            process.terminate()
            process.wait(timeout=30)


def corpus(folder: Path) -> str:
    (folder / "passages.jsonl").write_text(json.dumps({"id": "1", "title": "a", "text": "b"}) + "\n")
    return str(folder)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("command", "variable", "body"),
    [
        (["-c", _CODE, "env", "serve", "text_game"], "VERL_AGENTIC_ENV_TOKEN",
         {"path": "/v1/renew", "json": {"sessions": []}}),
        (["-c", _CODE, "sandbox", "serve", "--backend", "local", "--at-least", "none"], "VERL_AGENTIC_SANDBOX_TOKEN",
         {"path": "/run_code", "json": {"code": "print(42)", "language": "python"}}),
        (["-m", "verl_agentic.tools.search.search_server", "CORPUS"], "VERL_AGENTIC_SEARCH_TOKEN",
         {"path": "/retrieve", "json": {"queries": ["b"]}}),
    ],
    ids=["env", "sandbox", "search"],
)  # fmt: skip
def test_without_a_token_a_random_one_is_printed_with_its_use(
    tmp_path: Path, command: list[str], variable: str, body: dict[str, Any]
) -> None:
    command = [corpus(tmp_path) if word == "CORPUS" else word for word in command]
    with serving(command, tmp_path / "errors") as (first, second):
        found = re.search(r"(http://127\.0\.0\.1:\d+)", first)
        token = re.fullmatch(rf"use: {variable}=([\w-]{{32,}}) (\w+=\S+ )?\S+.*\n", second)
        assert found and token and found[1] in second and token[1] not in first
        url = found[1] + body["path"]
        assert httpx.post(url, json=body["json"], timeout=30).status_code == 401
        assert httpx.post(
            url, json=body["json"], headers={"Authorization": f"Bearer {token[1]}"}, timeout=30
        ).is_success


@pytest.mark.slow
def test_clients_that_hold_more_connections_than_there_are_descriptors_keep_nobody_out(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    errors = tmp_path / "errors"
    command = ["-c", _CODE, "env", "serve", "text_game"]
    with serving(command, errors, preexec_fn=limit) as (first, _), contextlib.ExitStack() as held:
        port = int(first.split(",")[0].rpartition(":")[2])
        for _ in range(200):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.sendall(b"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=30).status_code == 200
    assert errors.stat().st_size < 10_000, errors.read_text()[:1_000]
