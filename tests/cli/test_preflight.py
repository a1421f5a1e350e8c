"""`verl-agentic preflight` shows the first prompt, explains the numbers, and its exit code says whether to start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("verl")

from verl_agentic.base.env import EnvRow
from verl_agentic.base.paths import recipes_dir
from verl_agentic.base.types import Message
from verl_agentic.cli import main
from verl_agentic.data.prepare import to_records, write_parquet


@pytest.fixture
def command(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    # What a row holds must not reach the terminal as it is.
    question = EnvRow(
        prompt=(Message("user", "What is 2*21? \x1b[31m[bold]\u202e"),), ground_truth="42", data_source="x"
    )
    rows = to_records([question] * 16, env_id="python_math", split="train", agent_name="env_agent")
    write_parquet(rows, tmp_path / "rows.parquet")
    return [
        "preflight",
        *("--config-dir", str(recipes_dir() / "quickstart"), "--config-name", "grpo"),
        f"actor_rollout_ref.model.path={tiny_model}",
        f"data.train_files={tmp_path / 'rows.parquet'}",
        f"data.val_files={tmp_path / 'rows.parquet'}",
        f"trainer.default_local_dir={tmp_path / 'out'}",
    ]


def test_a_run_that_may_start_is_shown_with_its_prompt_and_numbers(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "python(code): Runs Python code and returns what it prints.<|im_end|>" in shown
    assert "What is 2*21? \\u001b[31m[bold]\\u202e<|im_end|>" in shown
    assert "\x1b[31m[bold]" not in shown and "\u202e" not in shown
    assert "samples per step" in shown and "16 prompts x 8" in shown and "this run can start" in shown


def test_a_fault_is_exit_code_1_and_a_configuration_that_cannot_be_composed_is_2(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "+trainer.save_freqency=1", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [c["check"] for c in report["checks"] if c["status"] == "fail"] == ["unknown_keys"]
    assert not report["ok"] and report["prompt"]["tools"] == ["python"] and report["prompt"]["tokens"] > 0
    assert {"name", "value", "unit", "how"} == set(report["numbers"][0])
    # Options may stand between overrides.
    between = [*command[:-1], "--json", command[-1], "--allow", "trainer.save_freqency", "+trainer.save_freqency=1"]
    assert main(between) == 0
    capsys.readouterr()
    assert main([*command, "trainer.save_freqency=1"]) == 2  # hydra itself refuses it without a plus
    assert "save_freqency" in capsys.readouterr().err
