"""`verl-agentic play`: one question to a model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_agentic.cli import main
from verl_agentic.episode.env_package import known_envs


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
