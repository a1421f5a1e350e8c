"""Whole dry runs, each one real step of `main_ppo`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.paths import recipes_dir
from verl_agentic.cli import main

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
# The step below scores by a function that does not work.
_REWARD = """
def compute_score(**kwargs):
    return kwargs["no_such_key"]
"""


def _dryrun(folder: Path, capsys: pytest.CaptureFixture[str], *overrides: str) -> tuple[int, dict[str, Any], str]:
    config = ["--config-dir", str(recipes_dir() / "quickstart"), "--config-name", "grpo"]
    code = main(["dryrun", *config, *overrides, "--out", str(folder), "--timeout", "400", "--json"])
    shown = capsys.readouterr()
    return code, json.loads(shown.out), shown.err


def _stages(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {stage["name"]: stage for stage in report["stages"]}


def test_the_quickstart_s_step_is_right_and_its_observations_get_no_gradient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report, shown = _dryrun(tmp_path, capsys)
    assert code == 0, (shown, (tmp_path / "main_ppo.log").read_text(errors="replace")[-4_000:])
    assert {stage["status"] for stage in report["stages"]} == {"ok"}
    kinds = report["proof"]["kinds"]
    assert kinds["tool"]["tokens"] > 0 and kinds["tool"]["with_gradient"] == 0
    assert report["proof"]["due"] == report["proof"]["due_with_gradient"] > 0
    stages = _stages(report)
    assert "8 episodes (2 follow the solution) in 2 groups" in stages["rollout"]["seen"][0]
    assert "2 of 2 groups have signal" in stages["advantage"]["seen"][0]
    assert "the same" in stages["weights"]["seen"][-1]
    assert "is exactly 0 on all" in " ".join(shown.split())


def test_a_mask_that_is_1_on_observations_fails_the_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "wrong_mask")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    code, report, shown = _dryrun(tmp_path, capsys)
    assert code == 1, shown
    stage = _stages(report)["gradient"]
    assert stage["status"] == "fail"
    wrong = "\n".join(stage["wrong"])
    assert "tokens of kind 'tool' that the policy did not write have a gradient" in wrong
    assert "other target ids at tokens that the policy did not write change the loss" in wrong
    assert report["proof"]["kinds"]["tool"]["with_gradient"] > 0


@pytest.mark.nightly
def test_a_reward_that_fails_is_named_with_its_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(_REWARD)
    code, report, _ = _dryrun(tmp_path / "out", capsys, f"reward.custom_reward_function.path={reward}")
    assert code == 1
    assert (report["error"]["stage"], report["error"]["type"]) == ("reward", "KeyError")
    assert "no_such_key" in report["error"]["message"]
