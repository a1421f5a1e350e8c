"""Agents of the command line in the recipe `cli_agents`, unmodified, behind the gateway: those that are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.paths import recipes_dir
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits

RECIPE = recipes_dir() / "cli_agents"
SCORE = f"{RECIPE / 'score.py'}:score"
TOOLS = {"mini": ("bash", "command"), "claude": ("Bash", "command"), "codex": ("exec_command", "cmd"),
         "openhands": ("terminal", "command")}  # fmt: skip
"""Agent -> its tool for commands, and the tool's argument."""
PROGRAM = """#!/bin/sh
printf '%s|' "$@" > ../arguments
echo noise
expr 6 '*' 7 > answer.txt
"""
"""Writes its arguments and the answer."""
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
# Their prompts have tens of thousands of bytes, which are tokens here.
LIMITS = EpisodeLimits(max_response_tokens=400_000, max_context_tokens=800_000, max_turns=8, max_retries=0,
                       start_timeout_s=600.0)  # fmt: skip


@pytest.mark.parametrize("agent", TOOLS)
def test_the_script_passes_task_and_model_and_prints_the_file_alone(agent: str, tmp_path: Path) -> None:
    (tmp_path / agent).write_text(PROGRAM)
    (tmp_path / agent).chmod(0o755)
    variables = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "VERL_AGENTIC_FOLDER": str(tmp_path),
                 "OPENAI_MODEL": "m", "OPENAI_BASE_URL": "http://gateway/v1", "OPENAI_API_KEY": "k"}  # fmt: skip
    task = {"prompt": [{"role": "user", "content": 'What is "6"*7?'}]}
    command = ["sh", str(RECIPE / "run_agent.sh"), agent]
    process = subprocess.run(command, input=json.dumps(task), env=variables, capture_output=True, text=True, check=True)
    assert process.stdout == "42\n" and "noise" in process.stderr
    arguments = (tmp_path / "arguments").read_text()
    assert 'What is "6"*7?\nWrite the answer' in arguments
    assert agent != "codex" or 'base_url="http://gateway/v1", env_key="OPENAI_API_KEY"' in arguments


@pytest.mark.slow
@pytest.mark.parametrize("agent", TOOLS)
async def test_an_agent_works_in_a_folder_of_its_own_and_its_file_is_scored(
    stage: Any, agent: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    if shutil.which(agent) is None:
        pytest.skip(f"{agent} is not on this machine")
    tool, argument = TOOLS[agent]

    def script(messages: Sequence[Message]) -> Message:
        """Writes the file, and ends."""
        if messages[-1].role != "tool":
            return Message("assistant", "", tool_calls=(ToolCall(tool, {argument: "expr 6 '*' 7 > answer.txt"}),))
        if agent == "mini":
            return Message("assistant", "", tool_calls=(ToolCall(tool, {argument: SUBMIT}),))
        return Message("assistant", "It is done.")

    command = ["sh", str(RECIPE / "run_agent.sh"), agent]
    episode, policy = await stage.play(command, script, score=SCORE, limits=LIMITS)
    assert episode.error is None and episode.reward.outcome == 1.0, episode.error
    policy.assert_trained(episode)
    assert not list(tmp_path.iterdir()), "it wrote into the user's home"


@pytest.mark.slow
async def test_an_agent_that_writes_no_answer_fails_and_an_unknown_one_is_named(stage: Any) -> None:
    episode, _ = await stage.play(["sh", str(RECIPE / "run_agent.sh"), "nobody"], lambda messages: "42", score=SCORE)
    assert episode.is_void and "mini, claude, codex or openhands, got nobody" in (episode.error or "")


def test_the_answer_alone_is_rewarded() -> None:
    from verl_agentic.base.registry import load_address

    score = load_address(SCORE, what="score")
    row = EnvRow(prompt=(Message("user", "?"),), ground_truth="42")
    assert [score(row, text, None) for text in ("42\n", "", "It is 42.", "41")] == [1.0, 0.0, 0.0, 0.0]
