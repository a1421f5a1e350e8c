"""`verl-agentic sandbox`: run and backends; serve is tested with the server."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from verl_agentic.cli import main

LOCAL = ["sandbox", "run", "--backend", "local", "--at-least", "none"]


def test_the_output_and_the_exit_code_are_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print(1); print('note', file=sys.stderr); sys.exit(3)"
    assert main([*LOCAL, "--", "python", "-c", code]) == 3
    assert capsys.readouterr().out == "1\n"


def test_auto_runs_a_program_or_says_why_no_backend_can(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["sandbox", "run", "--backend", "auto", "--", "python", "-c", "print(1)"])
    captured = capsys.readouterr()
    assert (status, captured.out) == (0, "1\n") or (status == 2 and "no sandbox backend here" in captured.err)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["sh", "-c", "kill -9 $$"], 137, "ended by SIGKILL"),
        (["sleep", "60"], 124, "stopped after 0.5 s"),
        (["no_such_program"], 127, "No such file or directory"),
        (["sh", "-c", "yes | head -c 20000000"], 0, "output cut at 16777216 bytes"),
    ],
)
def test_how_it_ended_is_told(argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    timeout = "0.5" if code == 124 else "20"
    assert main([*LOCAL, "--timeout", timeout, "--", *argv]) == code
    assert said in capsys.readouterr().err


def test_standard_input_is_given_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"abc")))
    assert main([*LOCAL, "--stdin", "--", "cat"]) == 0
    assert capsys.readouterr().out == "abc"


def test_options_of_the_backend_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LOCAL, "--set", "max_running=1", "--set", "is_trusted=true", "--", "true"]) == 0
    assert main([*LOCAL, "--set", "image=x", "--", "true"]) == 2
    assert "has no options ['image']" in capsys.readouterr().err
    assert main([*LOCAL, "--set", "image", "--", "true"]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


def test_json_is_the_whole_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LOCAL, "--json", "--", "sh", "-c", "echo out; kill -9 $$"]) == 137
    result = json.loads(capsys.readouterr().out)
    assert (result["backend"], result["stdout"], result["exit_code"]) == ("local", "out\n", -9)
    assert result["signal_name"] == "SIGKILL" and {"cpu_s", "peak_memory_mb", "timed_out", "oom"} <= set(result)


def test_a_weaker_backend_than_allowed_and_a_missing_program_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "run", "--backend", "local", "--", "true"]) == 2
    assert "process_limits" in capsys.readouterr().err
    assert main(LOCAL) == 2
    assert "needs a program" in capsys.readouterr().err


def test_backends_shows_each_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["sandbox", "backends", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [backend["name"] for backend in report["backends"]][:4] == ["namespaces", "docker", "landlock", "local"]
    assert all(backend["works"] or backend["refusal"] for backend in report["backends"])
    assert (status == 0) == (report["auto"] is not None)
    main(["sandbox", "backends"])
    shown = capsys.readouterr().out
    for backend in report["backends"]:
        assert backend["works"] or f"{backend['name']}: " in shown
    assert set(report["elsewhere"]) == {"daytona", "e2b", "kubernetes", "modal"} and "modal: " in shown
