"""Predictions from the episodes of an evaluation: the patch that the grader accepted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import EnvRow, Message
from verl_agentic.cli import main
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import run_episodes, scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.evaluate.evaluation_log import make_log_rows
from verl_agentic.evaluate.selection import SELECTED
from verl_agentic.log.reader import write_run
from verl_agentic.log.run_files import EVALUATION
from verl_agentic.swe.grading.repo_task import RepoTask

LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=40_000)


def evaluated(folder: Path, tiny_chat: tuple[Any, Any]) -> list[EnvRow]:
    """Writes an evaluation of two tasks: the first attempt at the second task is not submitted."""
    package = load_env_package("swe")
    assert package.make_rows is not None and package.gold is not None
    gold, (tokenizer, codec) = package.gold, tiny_chat
    rows = package.make_rows(split="test", count=2, seed=0)
    plan = [(row, sample) for sample in range(2) for row in rows]

    def setup_for(at: int, row: EnvRow) -> EpisodeSetup:
        solve = gold(row)

        def gives_up(messages: Sequence[Message]) -> Message | str:
            return "I give up." if any(message.role == "assistant" for message in messages) else solve(messages)

        return scripted(gives_up if at == 1 else solve, codec=codec, tokenizer=tokenizer, limits=LIMITS)

    played = [row for row, _ in plan]
    episodes = asyncio.run(run_episodes(played, make_env=package.make_env, setup_for=setup_for))
    logged = [
        record
        for one, (row, sample) in zip(episodes, plan, strict=True)
        for record in make_log_rows(
            one, row, columns={"uid": str(row.extra["task_id"]), "session": sample}, tokenizer=tokenizer
        )
    ]
    write_run(folder, trajectories=logged)
    (folder / EVALUATION).write_text("{}")
    return rows


def changed_lines(patch: str) -> list[str]:
    return sorted(line for line in patch.splitlines() if line[:1] in ("+", "-"))


@pytest.mark.slow
def test_predictions_are_the_accepted_patches_of_one_attempt(
    tmp_path: Path, tiny_chat: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = evaluated(tmp_path / "evaluation", tiny_chat)
    tasks = [RepoTask.from_json(row.extra["task"]) for row in rows]
    (tmp_path / "tasks.jsonl").write_text("".join(task.to_json() + "\n" for task in tasks))
    out = tmp_path / "predictions.jsonl"
    command = ["swe", "export", str(tmp_path / "tasks.jsonl"), "--predictions", str(out), "--model", "m"]
    source = ["--evaluation", str(tmp_path / "evaluation")]
    assert main([*command, *source]) == 0
    first, second = map(json.loads, out.read_text().splitlines())
    assert second == {"instance_id": tasks[1].instance_id, "model_name_or_path": "m", "model_patch": None}
    assert first["instance_id"] == tasks[0].instance_id
    assert changed_lines(first["model_patch"]) == changed_lines(tasks[0].patch)
    assert main([*command, *source, "--sample", "1"]) == 0
    assert all(json.loads(line)["model_patch"] for line in out.read_text().splitlines())
    capsys.readouterr()
    assert main([*command, *source, "--selected"]) == 2
    assert "--select" in capsys.readouterr().err
    chosen = [{"task_id": task.instance_id, "sample": sample} for task, sample in zip(tasks, (None, 1), strict=True)]
    (tmp_path / "evaluation" / SELECTED).write_text("".join(json.dumps(line) + "\n" for line in chosen))
    assert main([*command, *source, "--selected"]) == 0
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["instance_id"] == tasks[1].instance_id and line["model_patch"]
    capsys.readouterr()
    assert main([*command, *source, "--sample", "2"]) == 2
    assert "attempt 2" in capsys.readouterr().err
    assert main([*command, *source, "--patches", str(out)]) == 2
    assert "patches have one source" in capsys.readouterr().err
