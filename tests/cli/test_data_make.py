"""`verl-agentic data make` with a model behind HTTP: a scripted one, and the CPU server with a small model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from openai_server import choice, serving
from services import answering

from verl_agentic.cli import main
from verl_agentic.cpu.cli.serve import load_served
from verl_agentic.cpu.serving.http_server import make_app
from verl_agentic.log.files.record_files import read_json_lines, write_json_lines


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
    return main(
        ["data", "make", "planning_actions", *options, "--url", url, "--model", model, "--json", "--jobs", "1", *more]
    )


def said(*texts: str) -> Sequence[dict[str, object]]:
    return [choice(message={"role": "assistant", "content": text}) for text in texts]


def sft_dataset(file: Path, tokenizer: Any) -> Any:
    """The data set that verl's SFT trainer makes of a file, with the configuration of the recipes."""
    from verl.trainer.sft_trainer import create_sft_dataset

    import verl_agentic.config

    shared = OmegaConf.load(Path(verl_agentic.config.__file__).parent / "agentic" / "cpu_sft.yaml").data
    return create_sft_dataset([str(file)], OmegaConf.merge(shared, {"max_length": 4096}), tokenizer, None)


def spans(item: Any, tokenizer: Any, *, trained: bool) -> list[str]:
    """The texts of a row that are trained, or those that are not."""
    runs = groupby(zip(item["loss_mask"].tolist(), item["input_ids"].tolist(), strict=True), key=lambda pair: pair[0])
    return [tokenizer.decode([token for _, token in run]) for bit, run in runs if bit == trained]


def test_verls_sft_data_set_trains_the_messages_of_the_assistant_and_nothing_else(
    tmp_path: Path, tiny_model: Path, tiny_chat: Any
) -> None:
    out, tokenizer = tmp_path / "flan.jsonl", tiny_chat[0]
    assert main(["data", "make", "agent_flan", "-n", "20", "--out", str(out), "--tokenizer", str(tiny_model)]) == 0
    made = [row for _, row in read_json_lines(out)]
    dataset = sft_dataset(out, tokenizer)
    assert len(dataset) == len(made) and {row["class"] for row in made} == {"dialogue", "format", "negative"}
    for row, item in zip(made, map(dataset.__getitem__, range(len(dataset))), strict=True):
        trained = spans(item, tokenizer, trained=True)
        assistant = [message for message in row["messages"] if message["role"] == "assistant"]
        assert len(trained) == len(assistant)
        for text, message in zip(trained, assistant, strict=True):
            calls = [json.loads(call) for call in re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)]
            said = [call["function"] for call in message.get("tool_calls") or []]
            assert calls == said and message["content"] in text and text.endswith("<|im_end|>")
        assert row["class"] == "format" or "<tool_call>" not in "".join(trained)
        assert any(tool["function"]["name"] in spans(item, tokenizer, trained=False)[0] for tool in row["tools"]) or (
            row["case"] == "no_tools"
        )


def test_plans_become_rows_for_continual_pretraining(tmp_path: Path, tiny_model: Path, tiny_chat: Any) -> None:
    with serving() as server:
        server.answers = [*said("1. Look.", "It is unknown."), *said("1. Ask.", "Nobody knows.")]
        code = make(tmp_path, f"{server.url}/v1", "--tokenizer", str(tiny_model), "--as", "cpt")
    dataset = sft_dataset(tmp_path / "p.jsonl", tiny_chat[0])
    assert code == 0 and len(dataset) == 2
    for item, plan in zip(map(dataset.__getitem__, range(2)), ("1. Look.", "1. Ask."), strict=True):
        (text,) = spans(item, tiny_chat[0], trained=True)
        assert "Who built bridge" in text and plan in text
    assert make(tmp_path, f"{server.url}/v1", "--as", "cpt") == 2, "ids need a tokenizer"


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


def test_the_coverage_is_printed_before_and_after_the_tail_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [
        {"subject": f"P{number}", "relation": relation, "object": value}
        for number in range(12)
        for relation, value in (("born", f"C{number % 4}"), ("plays", f"I{number % 3}"), ("code", f"X{number}"))
    ]
    write_json_lines(facts, tmp_path / "facts.jsonl")
    options = ["--option", f"facts={tmp_path / 'facts.jsonl'}", "--option", "layers=0", "--cover", "2", "-n", "1"]
    assert main(["data", "make", "set_questions", *options, "--out", str(tmp_path / "a.jsonl")]) == 0
    assert "100% of 3 cells have 2 rows or more (0% before the tail was asked for)" in capsys.readouterr().out
    assert main(["data", "make", "set_questions", *options, "--json", "--out", str(tmp_path / "b.jsonl")]) == 0
    counts = json.loads(capsys.readouterr().out)["coverage"]["rows"]
    assert set(counts) == {"born", "plays", "code"} and min(counts.values()) >= 2
    assert main(["data", "make", "agent_flan", "--cover", "1", "--out", str(tmp_path / "c.jsonl")]) == 2
    assert "--cover" in capsys.readouterr().err
