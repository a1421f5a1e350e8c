"""`verl-agentic serve`, as a program: it answers over HTTP, wants a token from other machines, and ends when told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from verl_agentic.cli import main


@pytest.mark.slow
def test_a_model_is_served_until_the_server_is_told_to_end(tiny_model: Path) -> None:
    arguments = ["serve", "--model", str(tiny_model), "--port", "0", "--name", "tiny", "--threads", "1"]
    code = f"from verl_agentic.cli import main; raise SystemExit(main({arguments!r}))"
    env = {**os.environ, "VERL_AGENTIC_API_KEY": "sesame"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"serving tiny at (http://127\.0\.0\.1:\d+/v1), up to 4096 tokens\n", line)
            assert found is not None, line
            key = {"Authorization": "Bearer sesame"}
            assert httpx.get(f"{found[1]}/models").status_code == 401
            assert httpx.get(f"{found[1]}/models", headers=key).json()["data"][0]["id"] == "tiny"
            body = {"model": "tiny", "prompt": [5, 6], "max_tokens": 3, "return_token_ids": True}
            answer = httpx.post(f"{found[1]}/completions", json=body, headers=key, timeout=30).json()
            assert 1 <= len(answer["choices"][0]["token_ids"]) <= 3
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0 and time.monotonic() - started < 15
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/nowhere"], "no such model folder, got /nowhere; name a Hugging Face folder"),
        (
            ["--model", "MODEL", "--host", "0.0.0.0"],
            "a server that other machines reach needs a token, got host 0.0.0.0",
        ),
        (["--model", "MODEL", "--host", "192.0.2.1", "--token-file", "TOKEN"], "cannot listen at 192.0.2.1:8000, got"),
    ],
)
def test_what_cannot_be_served_is_told(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("VERL_AGENTIC_API_KEY", raising=False)
    (tmp_path / "token").write_text("sesame\n")
    places = {"MODEL": str(tiny_model), "TOKEN": str(tmp_path / "token")}
    assert main(["serve", *(places.get(argument, argument) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
