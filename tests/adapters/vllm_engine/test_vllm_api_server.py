"""`verl-agentic evaluate` against vLLM's own API server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from searching import ROWS, make_searching_env

from verl_agentic.cli import main
from verl_agentic.evaluate.evaluation_log import read_episodes
from verl_agentic.log.files.rows import write_rows
from verl_agentic.verl.features import is_installed

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed("vllm"), reason="vLLM is not installed; run `make test-vllm`"),
]

_CONTEXT = 448
_START_S = 900.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, chat_player: Path) -> Path:
    """Rows, an environment, and a model that knows how to play it."""
    folder = tmp_path_factory.mktemp("api")
    make_searching_env(folder)
    shutil.copytree(chat_player, folder / "model")
    write_rows(ROWS[:8], folder / "rows.jsonl")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The address of a server of the model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The command `vllm` asks for a distribution of that name, which the CPU build has not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(folder / "model"), "--served-model-name", "tiny", "--dtype", "float32"]
    command += ["--enforce-eager", "--max-model-len", str(_CONTEXT), "--kv-cache-memory-bytes", str(64 << 20)]
    command += ["--gpu-memory-utilization", "0.05", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    settings = {"TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **settings})
        try:
            deadline = time.monotonic() + _START_S
            while not _answers(f"http://127.0.0.1:{port}/health"):
                assert process.poll() is None, (folder / "server.log").read_text(errors="replace")[-4000:]
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(60)


def _answers(address: str) -> bool:
    try:
        return urllib.request.urlopen(address, timeout=2).status == 200
    except OSError:
        return False


def _evaluate(folder: Path, url: str, mode: str, out: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the summary, and the records by their key."""
    given = ["evaluate", "--env", str(next(folder.glob("searching_*"))), "--endpoint", url, "--model", "tiny"]
    given += ["--rows", str(folder / "rows.jsonl"), "--mode", mode, "--tokenizer", str(folder / "model"), "--json"]
    given += ["--temperature", "0", "--samples", "2", "--out", str(folder / out)]
    assert main(given) == 0
    summary = json.loads((folder / out / "summary.json").read_text())
    return summary, {key: row for key, (row,) in read_episodes(folder / out).items()}


def test_ids_are_exact_and_the_same_in_both_modes_within_the_context_of_the_model(folder: Path, url: str) -> None:
    summaries, records = zip(*(_evaluate(folder, url, mode, mode) for mode in ("completions", "chat")), strict=True)
    for summary in summaries:
        # With the default context, vLLM would refuse each request for more tokens than it has.
        assert (summary["episodes"], summary["void"], summary["token_ids"]) == (16, 0, ["exact"])
        assert summary["tool_calls"]["mean"] > 2
    by_tokens, by_messages = records
    for key, row in by_tokens.items():
        other = by_messages[key]
        assert len(row["prompt_ids"]) + len(row["response_ids"]) <= _CONTEXT
        for name in ("prompt_ids", "response_ids", "response_mask"):
            assert row[name] == other[name]
