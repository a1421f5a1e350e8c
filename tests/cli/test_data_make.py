"""`verl-agentic data make` with a model behind HTTP: a scripted one, and the CPU server with a small model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from openai_server import choice, serving
from services import answering

from verl_agentic.cli import main
from verl_agentic.cli.serve import load_served
from verl_agentic.data.rows import read_json_lines, write_json_lines
from verl_agentic.inference.http_server import make_app


def make(tmp_path: Path, url: str, *more: str, model: str = "m") -> int:
    write_json_lines([{"question": f"Who built bridge {number}?"} for number in range(2)], tmp_path / "q.jsonl")
    options = [
        "--option",
        f"questions={tmp_path / 'q.jsonl'}",
        "--option",
        "plans=1",
        "--out",
        str(tmp_path / "p.jsonl"),
    ]
    return main(["data", "make", "plans", *options, "--url", url, "--model", model, "--json", "--jobs", "1", *more])


def said(*texts: str) -> Sequence[dict[str, object]]:
    return [choice(message={"role": "assistant", "content": text}) for text in texts]


def test_replies_of_a_model_become_rows_and_a_plan_with_a_call_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAN_KEY", "sesame")
    with serving() as server:
        server.answers = [
            *said("1. Find the builder.", "The builder is unknown.", "1. Look.", "<search>bridge 1</search>")
        ]
        assert make(tmp_path, f"{server.url}/v1", "--api-key-env", "PLAN_KEY", "--temperature", "0.5") == 0
        assert not server.answers and set(server.keys) == {"Bearer sesame"}
        assert all(body["temperature"] == 0.5 and body["model"] == "m" for body in server.bodies)
        assert "Who built bridge 0?" in server.bodies[0]["messages"][-1]["content"]
    (row,) = [row for _, row in read_json_lines(tmp_path / "p.jsonl")]
    assert row["messages"][-1]["content"] == "Plan:\n1. Find the builder.\n\nThe builder is unknown."
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 1 and sum(report["dropped"].values()) == 1 and "<search" in str(report["examples"])


def test_a_model_on_the_cpu_server_is_asked_and_its_replies_are_checked(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = load_served(tiny_model, name="tiny", tool_format="hermes", max_running=4, threads=None, token="")
    try:
        with answering(make_app(served)) as service:
            code = make(tmp_path, f"{service.url}/v1", "--max-tokens", "16", model="tiny")
    finally:
        asyncio.run(served.engine.close())
    report = json.loads(capsys.readouterr().out)
    written = [row for _, row in read_json_lines(tmp_path / "p.jsonl")]
    assert report["unfinished"] == 0 and report["rows"] == len(written) and code == (0 if written else 1)
    kept = [record for _, record in read_json_lines(tmp_path / "p.journal.jsonl")]
    assert len(kept) == 2 and all(record["reason"] or record["record"]["plan"] for record in kept)
