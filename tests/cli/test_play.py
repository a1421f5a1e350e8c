"""`verl-agentic play`: one question to a model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.cli import main
from verl_agentic.episode.env_package import known_envs
from verl_agentic.log.files.rows import write_rows

NEEDS_STOCK = """
from verl_agentic import Reward, ToolEnv

class StockEnv(ToolEnv):
    async def score(self, transcript):
        return Reward(0.0)

def make_env(row, shelf=None):
    assert row.extra["stock"] == 7 and shelf in (None, [3])
    return StockEnv(row, [])
"""


def test_a_question_is_played_and_shown_with_prompt_answer_and_reason(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["play", "What is 6*7?", "--model", str(tiny_model), "--max-tokens", "5"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "python(code): Runs Python code" in shown and "<|im_start|>user\nWhat is 6*7?<|im_end|>" in shown
    assert shown.endswith("stopped: max_tokens\n")
    assert main([*arguments, "--seed", "7"]) == 0
    assert capsys.readouterr().out == shown, "greedy by default"
    assert main([*arguments, "--temperature", "1", "--seed", "1"]) == 0
    assert capsys.readouterr().out != shown


def test_a_missing_model_and_a_missing_environment_are_answered_with_the_way_out(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", "hi", "--model", str(tmp_path)]) == 2
    assert f"no such model folder, got {tmp_path}; run `make quickstart`" in capsys.readouterr().err
    assert main(["play", "hi", "--model", str(tiny_model), "--env", "nope"]) == 2
    assert f"unknown environment, got 'nope'; use one of {known_envs()}" in capsys.readouterr().err


def test_a_question_of_a_file_has_all_that_its_row_has(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stock").mkdir()
    (tmp_path / "stock" / "__init__.py").write_text(NEEDS_STOCK)
    rows = tmp_path / "rows.jsonl"
    question = (Message("user", "How many?"),)
    write_rows([EnvRow(prompt=question, ground_truth="7", extra={"stock": 7})], rows)
    options = ["--model", str(tiny_model), "--env", str(tmp_path / "stock"), "--max-tokens", "5"]

    assert main(["play", "How many?", *options]) == 1, "the environment lacks what it needs"
    assert main(["play", "How many?", *options, "--rows", str(rows)]) == 0
    assert main(["play", "How much?", *options, "--rows", str(rows)]) == 2
    assert "got 'How much?'" in capsys.readouterr().err
    for config, code in (("shelf=[3]", 0), ("shelf=[4]", 1), ("shelves=[3]", 2)):
        assert main(["play", "How many?", *options, "--rows", str(rows), "--config", config]) == code, config
    assert "make_env(row, shelf=None)" in capsys.readouterr().err
