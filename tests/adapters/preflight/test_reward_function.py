"""The user's reward function is called as verl calls it, and what keeps it from scoring is found before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf

from verl_agentic.checks.preflight.checks.reward import reward
from verl_agentic.checks.preflight.planned_run import FunctionTrial, PlannedRun
from verl_agentic.verl.extensions.preflight import reward_function
from verl_agentic.verl.extensions.preflight.reward_function import try_function

ROW = {"data_source": "mine", "reward_model": {"ground_truth": "42"}, "extra_info": {"index": 0}}
SIGNATURE = "data_source, solution_str, ground_truth, extra_info=None"


def tried(
    folder: Path, source: str, *, row: dict[str, Any] | None = None, name: str = "compute_score"
) -> FunctionTrial:
    (folder / "mine.py").write_text(source)
    manager = {"source": "register", "name": "naive", "module": {"path": None}}
    function = {"path": str(folder / "mine.py"), "name": "compute_score", "reward_kwargs": {"bonus": 1}}
    section = {"custom_reward_function": function, "reward_manager": manager, "reward_model": {"enable": False}}
    trial = try_function(OmegaConf.create({"reward": section, "trainer": {"experiment_name": "x"}}), row or ROW)
    assert trial is not None
    return trial


def status(trial: FunctionTrial) -> str:
    (finding,) = reward(PlannedRun(config={}, defaults={}, function=trial))
    assert trial.name in finding.found
    return finding.status


def test_it_gets_the_row_as_it_was_written(tmp_path: Path) -> None:
    row = {
        "data_source": "mine",
        "reward_model": {"ground_truth": '"2024-01-02"', "format": "json"},
        "extra_info": {"index": 0, "extra_json": '{"n": 1}'},
    }
    source = f"def compute_score({SIGNATURE}, bonus=0): return float(ground_truth == '2024-01-02') * extra_info['n']"
    trial = tried(tmp_path, source, row=row)
    assert not trial.fault and set(trial.scores.values()) == {1.0}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (f"def reward({SIGNATURE}, bonus=0): return 1", "compute_score"),
        ("import no_such_package", "no_such_package"),
        ("raise SystemExit(3)", "SystemExit"),
        ("def compute_score(data_source, solution_str, ground_truth, bonus=0): return 1", "extra_info"),
        (f"def compute_score({SIGNATURE}): return 1", "bonus"),
        (f"def compute_score({SIGNATURE}, bonus=0): return extra_info['answer_key']", "answer_key"),
        (f"def compute_score({SIGNATURE}, bonus=0): return None", "None"),
        (f"def compute_score({SIGNATURE}, bonus=0): return float('nan')", "nan"),
        (f"def compute_score({SIGNATURE}, bonus=0): return {{'acc': 1}}", "acc"),
        (f"def compute_score({SIGNATURE}, bonus=0): exit()", "SystemExit"),
        (f"async def compute_score({SIGNATURE}, bonus=0): raise KeyError('late')", "late"),
        ("compute_score = 3", "int"),
    ],
)
def test_what_ends_the_first_reward_fails(tmp_path: Path, source: str, says: str) -> None:
    trial = tried(tmp_path, source)
    assert status(trial) == "fail" and says in trial.fault, trial


@pytest.mark.parametrize(
    "row", [{"reward_model": ROW["reward_model"]}, {"data_source": "mine"}, {**ROW, "reward_model": {}}]
)
def test_rows_without_a_column_that_verl_passes_fail(tmp_path: Path, row: dict[str, Any]) -> None:
    assert status(tried(tmp_path, f"def compute_score({SIGNATURE}, bonus=0): return 1", row=row)) == "fail"


def test_the_place_of_an_exception_is_that_in_the_file_of_the_user(tmp_path: Path) -> None:
    source = f"import json\ndef compute_score({SIGNATURE}, bonus=0):\n    return json.loads(solution_str)\n"
    assert "mine.py:3 in compute_score" in tried(tmp_path, source).fault


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_that_tells_right_from_wrong_passes(tmp_path: Path, kind: str) -> None:
    source = f"{kind} compute_score({SIGNATURE}, bonus=0):\n"
    source += (
        "    extra_info['seen'] = 1\n    return {'score': bonus * float(ground_truth in solution_str), 'acc': 1}\n"
    )
    trial = tried(tmp_path, source)
    assert status(trial) == "ok" and list(trial.scores.values()) == [0.0] + [1.0] * (len(trial.scores) - 1)


def test_a_function_that_gives_everything_the_same_is_warned_of(tmp_path: Path) -> None:
    assert status(tried(tmp_path, f"def compute_score({SIGNATURE}, bonus=0): return 0.5")) == "warn"


@pytest.mark.parametrize("source", ["import time; time.sleep(9)", "raise ConnectionRefusedError('judge')"])
def test_a_function_that_waits_for_something_elsewhere_is_not_tested(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_function, "_DEADLINE_S", 0.2)
    assert status(tried(tmp_path, f"def compute_score({SIGNATURE}, bonus=0): {source}")) == "not tested"


def test_without_a_right_answer_it_is_called_but_not_tested(tmp_path: Path) -> None:
    row = {**ROW, "reward_model": {"ground_truth": None}}
    assert status(tried(tmp_path, f"def compute_score({SIGNATURE}, bonus=0): return 1", row=row)) == "not tested"
