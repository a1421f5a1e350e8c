"""The service over real HTTP on loopback: SandboxFusion's contract, back-pressure, tokens, metrics, shutdown."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Service, serving

from verl_agentic.base.errors import ConfigError, SandboxError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Tree
from verl_agentic.sandbox.local.local_backend import LocalBackend, LocalSandbox
from verl_agentic.sandbox.run_code import languages
from verl_agentic.sandbox.run_code.languages import Language

TOKEN = "sesame"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(LocalBackend(is_trusted=True), size=4, output_bytes=5_000) as running:
        yield running


def post(service: Service, **body: Any) -> httpx.Response:
    return httpx.post(f"{service.url}/run_code", json={"language": "python", **body}, timeout=60)


def test_python_runs_and_the_answer_has_the_fields_of_the_contract(service: Service) -> None:
    answer = post(service, code="print(input()[::-1])", stdin="abc\n").json()
    run = answer["run_result"]
    assert set(answer) == {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"}
    assert (answer["status"], answer["compile_result"], answer["message"]) == ("Success", None, "")
    assert (run["status"], run["return_code"], run["stdout"], run["stderr"]) == ("Finished", 0, "cba\n", "")
    assert run["execution_time"] > 0 and run["cpu_s"] > 0 and run["peak_memory_mb"] >= 0


def test_code_that_fails_is_answered_with_200_and_failed(service: Service) -> None:
    response = post(service, code="import sys\nsys.exit(3)")
    assert (response.status_code, response.json()["status"]) == (200, "Failed")
    assert response.json()["run_result"]["return_code"] == 3


@pytest.mark.slow
def test_code_that_hangs_is_stopped_at_run_timeout(service: Service) -> None:
    started = time.monotonic()
    answer = post(service, code="print(1, flush=True)\nwhile True: pass", run_timeout=1.0).json()
    run = answer["run_result"]
    assert (answer["status"], run["status"], run["return_code"]) == ("Failed", "TimeLimitExceeded", None)
    assert run["stdout"] == "1\n" and time.monotonic() - started < 10


@pytest.mark.slow
def test_memory_is_limited_to_what_was_asked_for(service: Service) -> None:
    code = "x = bytearray(300 * 2**20)\nprint(len(x))"
    assert "MemoryError" in post(service, code=code, memory_limit_MB=128).json()["run_result"]["stderr"]
    assert post(service, code=code, memory_limit_MB=1024).json()["status"] == "Success"


def test_bash_runs_with_files_in_and_out(service: Service) -> None:
    answer = post(
        service,
        language="bash",
        code="tr a-z A-Z < in/a.txt > out.txt; exit 0",
        files={"in/a.txt": base64.b64encode(b"text").decode(), "ignored.txt": None},
        fetch_files=["out.txt", "missing.txt"],
    ).json()
    assert answer["status"] == "Success" and answer["files"] == {"out.txt": base64.b64encode(b"TEXT").decode()}


@pytest.mark.slow
def test_a_compiled_language_is_compiled_first_and_its_errors_are_the_compilers(service: Service) -> None:
    if "cpp" not in httpx.get(f"{service.url}/health").json()["languages"]:
        pytest.skip("no g++ on this machine")
    code = "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << x * 2; return 5; }"
    answer = post(service, language="cpp", code=code, stdin="21", compile_timeout=60).json()
    assert answer["compile_result"]["return_code"] == 0
    assert (answer["run_result"]["stdout"], answer["run_result"]["return_code"]) == ("42", 5)
    broken = post(service, language="cpp", code="int main() {", compile_timeout=60).json()
    assert broken["status"] == "Failed" and broken["run_result"] is None
    assert broken["compile_result"]["return_code"] != 0 and "error" in broken["compile_result"]["stderr"]


@pytest.mark.slow
def test_a_language_whose_compiler_does_not_work_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Language(needs=["sh"], source="main.sh", compile=["sh", "-c", "exit 1"], run=["true"], proof="42")
    monkeypatch.setitem(languages.LANGUAGES, "lua", broken)
    with serving(LocalBackend(is_trusted=True), size=4) as service:
        offered = httpx.get(f"{service.url}/health").json()["languages"]
    assert "bash" in offered and "lua" not in offered


def test_long_output_is_cut(service: Service) -> None:
    run = post(service, code="print('x' * 100_000)").json()["run_result"]
    assert run["stdout"] == "x" * 2_500 + "\n... 95001 bytes left out ...\n" + "x" * 2_499 + "\n"
    assert run["stdout_truncated"] and not run["stderr_truncated"]


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"code": "1", "language": "cobol"}, "the language must be one of bash"),
        ({"code": "1", "run_timeout": 1e6}, "allows 300 s"),
        ({"code": "1", "memory_limit_MB": 10**6}, "8192 MiB"),
        ({"code": "1", "files": {"../a": "eA=="}}, "below the working folder"),
        ({"code": "1", "files": {"a": "?"}}, "base64"),
        ({"code": "1", "run_timeout": "soon"}, "run_timeout"),
        ({"code": "1", "extension": {"limits": {"wings": 2}}}, "unknown keys in limits, got ['wings']"),
        ({"language": "python"}, "code: Field required"),
    ],
)
def test_a_request_that_cannot_be_run_is_refused_with_the_reason(
    service: Service, body: dict[str, Any], reason: str
) -> None:
    response = post(service, **body)
    assert response.status_code == 400 and reason in response.json()["detail"]


@pytest.mark.slow
def test_a_failure_of_the_sandbox_is_no_failure_of_the_code() -> None:
    class Sandbox(LocalSandbox):
        async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
            if command.code == "break":
                raise SandboxError("the disk is full")
            return await super().run(command, limits=limits, fresh=fresh)

    class Backend(LocalBackend):
        async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> LocalSandbox:
            made = await super().create(trees=trees, image=image)
            made.__class__ = Sandbox
            return made

    with serving(Backend(is_trusted=True), size=1) as service:
        answer = post(service, code="break").json()
        metrics = httpx.get(f"{service.url}/metrics").text
    assert (answer["status"], answer["message"], answer["run_result"]) == ("SandboxError", "the disk is full", None)
    assert "verl_agentic_sandbox_failed_total 1" in metrics


def wait_for_metric(url: str, line: str) -> None:
    deadline = time.monotonic() + 20
    while line not in httpx.get(f"{url}/metrics").text.splitlines():
        assert time.monotonic() < deadline, f"never {line}"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_full_queue_is_answered_with_429_and_a_long_wait_with_504(tmp_path: Path) -> None:
    config = {"size": 1, "max_waiting": 1, "queue_timeout_s": 3.0}
    goes_on = tmp_path / "goes_on"
    with serving(LocalBackend(is_trusted=True), **config) as service:
        answers: list[httpx.Response] = []
        slow = {
            "code": f"import os, time\nwhile not os.path.exists({str(goes_on)!r}): time.sleep(0.02)",
            "run_timeout": 30,
        }
        first, second = (threading.Thread(target=lambda: answers.append(post(service, **slow))) for _ in range(2))
        first.start()
        wait_for_metric(service.url, "verl_agentic_sandbox_running 1")
        second.start()
        wait_for_metric(service.url, "verl_agentic_sandbox_waiting 1")
        refused = post(service, code="print(1)")
        second.join()
        goes_on.touch()
        first.join()
        metrics = httpx.get(f"{service.url}/metrics").text
    assert refused.status_code == 429 and float(refused.headers["retry-after"]) > 0
    assert sorted(answer.status_code for answer in answers) == [200, 504]
    assert 'answers_total{status="429"} 1' in metrics and 'answers_total{status="504"} 1' in metrics


@pytest.mark.slow
def test_without_the_token_nothing_runs() -> None:
    with serving(LocalBackend(is_trusted=True), size=1, token=TOKEN) as service:
        body = {"code": "print(1)", "language": "python"}
        url = f"{service.url}/run_code"
        with_password = url.replace("://", f"://anybody:{TOKEN}@")
        assert httpx.post(url, json=body).status_code == 401
        assert httpx.post(url, json=body, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.post(url, json=body, headers={"Authorization": "Basic ???"}).status_code == 401
        assert httpx.post(url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert httpx.post(with_password, json=body).status_code == 200
        assert httpx.get(f"{service.url}/metrics").status_code == 401
        assert TOKEN not in httpx.get(f"{service.url}/health").text


@pytest.mark.slow
def test_a_request_that_is_too_large_is_refused(service: Service) -> None:
    with serving(LocalBackend(is_trusted=True), size=1, max_request_mb=1) as small:
        response = post(small, code="#" * 2**21)
    assert response.status_code == 413
    assert post(service, code="#" * 2**21).status_code == 200


def test_health_says_what_serves_and_metrics_count(service: Service) -> None:
    post(service, code="print(1)")
    health = httpx.get(f"{service.url}/health").json()
    assert (health["service"], health["backend"], health["isolation"]) == ("verl-agentic", "local", "process_limits")
    assert {"python", "bash"} <= set(health["languages"])
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["verl_agentic_sandbox_completed_total"]) >= 1
    assert float(values["verl_agentic_sandbox_running"]) == 0
    assert float(values['verl_agentic_sandbox_run_seconds{quantile="0.5"}']) > 0
    assert float(values['verl_agentic_sandbox_answers_total{status="Success"}']) >= 1


def test_when_the_client_goes_its_code_is_killed(service: Service, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{service.url}/run_code", json={"code": code, "language": "python", "run_timeout": 60}, timeout=5.0)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{marker.read_text()}").exists():
        assert time.monotonic() < deadline, "the code still runs"
        time.sleep(0.02)


def _serve(*options: str, **environment: str) -> subprocess.Popen[str]:
    code = "import sys; from verl_agentic.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "sandbox", "serve", "--port", "0", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


@pytest.mark.slow
def test_the_command_serves_and_at_sigterm_answers_what_it_has_begun(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ["--backend", "local", "--at-least", "none", "--size", "2", "--token-file", str(tmp_path / "token")]
    process = _serve(*options, TMPDIR=str(tmp_path))
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving local at http://127.0.0.1:") and "python" in line
        url = line.split()[3].rstrip(",").replace("://", f"://x:{TOKEN}@")
        answers: list[dict[str, Any]] = []
        body = {"code": "import time; time.sleep(3); print(1)", "language": "python"}
        thread = threading.Thread(target=lambda: answers.append(httpx.post(url, json=body, timeout=30).json()))
        thread.start()
        wait_for_metric(url.removesuffix("/run_code"), "verl_agentic_sandbox_running 1")
        process.send_signal(signal.SIGTERM)
        thread.join()
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert answers[0]["run_result"]["stdout"] == "1\n"
    assert process.returncode == 0, errors
    assert TOKEN not in output + errors
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_server_for_other_machines_needs_a_token() -> None:
    from verl_agentic.cli import main
    from verl_agentic.web.listening.listening_options import read_token
    from verl_agentic.web.listening.request_guard import is_loopback

    assert main(["sandbox", "serve", "--host", "0.0.0.0", "--backend", "local", "--at-least", "none"]) == 2
    assert is_loopback("::1") and is_loopback("localhost") and not is_loopback("10.0.0.1")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(Path("/nowhere/token"), "UNSET")
