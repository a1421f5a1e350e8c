"""SandboxFusion's own client against our server, and our client's requests in its models."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from services import serving

from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.local.local_backend import LocalBackend
from verl_agentic.sandbox.run_code.remote_backend import request_body

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its models are of pydantic 1
    fusion: Any = pytest.importorskip("sandbox_fusion")


@pytest.mark.filterwarnings("ignore:The `dict` method is deprecated")
def test_its_client_runs_code_on_our_server() -> None:
    request = fusion.RunCodeRequest(code="print(input())", language="python", stdin="42", run_timeout=20)
    with serving(LocalBackend(is_trusted=True), size=1) as service:
        answer = fusion.run_code(request, endpoint=service.url)
    assert (answer.status, answer.run_result.stdout) == (fusion.RunStatus.Success, "42\n")


@pytest.mark.parametrize("command", [Command(code="print(1)", files={"a": b"x"}), Command(argv=["ls"], outputs=["a"])])
def test_our_requests_are_of_its_models(command: Command) -> None:
    body = request_body(command, Limits(wall_s=7.0), is_ours=False)
    parsed = fusion.RunCodeRequest(**body)
    assert (parsed.run_timeout, parsed.code, parsed.language) == (7.0, body["code"], body["language"])
    assert (parsed.files, parsed.fetch_files) == (body["files"], body["fetch_files"])
