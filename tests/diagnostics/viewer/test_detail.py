"""One trajectory, as the page gets it."""

from __future__ import annotations

import json
from pathlib import Path

from verl_agentic.log.reader import RunLog, write_run
from verl_agentic.observe.viewer.detail import detail
from verl_agentic.observe.viewer.run_view import RunView

KEY = {"uid": "a", "session": 0, "index": 0}


def recorded(folder: Path, **columns: object) -> dict:
    updates = {name: columns.pop(name) for name in ("old_log_probs", "advantages", "values") if name in columns}
    start = {**KEY, "split": "train", "step": 1, "place": "last", "role": "policy"}
    run = write_run(folder, trajectories=[{**start, **columns}], updates=[{**KEY, **updates}] if updates else [])
    return detail(RunLog(run).record(0), None)


def test_the_gap_is_of_rollout_minus_trainer_at_trained_tokens_only(tmp_path: Path) -> None:
    shown = recorded(
        tmp_path,
        response_ids=[5, 6, 7],
        response_mask=[1, 0, 1],
        rollout_log_probs=[-1.0, 0.0, -2.0],
        old_log_probs=[-1.5, -9.0, -1.0],
    )
    assert shown["tokens"]["columns"]["gap"] == [0.5, None, -1.0]
    assert shown["tokens"]["columns"]["trainer_log_prob"] == [-1.5, -9.0, -1.0]


def test_a_column_of_one_value_is_that_value_and_an_empty_one_is_left_out(tmp_path: Path) -> None:
    shown = recorded(tmp_path, response_ids=[5, 6], response_mask=[1, 1], advantages=[0.25, 0.25], values=[])
    assert shown["tokens"]["columns"] == {"advantage": 0.25}
    assert shown["tokens"]["texts"] is None and shown["tokens"]["ids"] == [5, 6]


def test_numbers_that_json_has_no_word_for_are_null(tmp_path: Path) -> None:
    shown = recorded(
        tmp_path,
        response_ids=[5, 6],
        response_mask=[1, 1],
        token_rewards=[float("nan"), float("-inf")],
        reward=float("inf"),
        numbers={"a": float("nan"), "b": 1.23456789},
    )
    assert shown["tokens"]["columns"]["reward"] is None
    assert shown["meta"]["reward"] is None and shown["numbers"] == {"a": None, "b": 1.235}
    json.dumps(shown, allow_nan=False)


def test_a_row_that_no_step_trained_on_is_shown_without_its_columns(tmp_path: Path) -> None:
    shown = recorded(tmp_path, response_ids=[5], response_mask=[1], rollout_log_probs=[-0.5])
    assert shown["tokens"]["columns"] == {"log_prob": -0.5}
    assert shown["meta"]["mean_advantage"] is None and shown["score"] is None


def test_json_is_laid_out_and_what_is_none_stays_as_it_is(tmp_path: Path) -> None:
    shown = recorded(tmp_path, extra='{"é":1}', ground_truth="not {json")
    assert shown["extra"] == '{\n  "é": 1\n}' and shown["ground_truth"] == "not {json"


def test_details_of_the_outcome_are_apart_from_the_score(tmp_path: Path) -> None:
    score = {"outcome": 1.0, "parts": {}, "info": {}}
    shown = recorded(tmp_path, env_score=json.dumps({**score, "details": {"patch": "+x"}}))
    assert shown["details"] == {"patch": "+x"} and json.loads(shown["env_score"]) == score
    for number, text in enumerate((json.dumps(score), "not JSON", None, json.dumps({**score, "details": 3}))):
        shown = recorded(tmp_path / str(number), env_score=text)
        assert shown["details"] is None and bool(shown["env_score"]) == bool(text)


def test_every_trajectory_of_a_run_can_be_shown_with_its_own_tokens(view: RunView) -> None:
    for number in range(0, view.groups.table.num_rows, 7):
        shown, row = view.detail_of(number), view.groups.table.slice(number, 1).to_pylist()[0]
        assert (shown["meta"]["uid"], shown["meta"]["session"]) == (row["uid"], row["session"])
        tokens = shown["tokens"]
        assert len(tokens["ids"]) == len(tokens["texts"]) == len(tokens["mask"]) > 20
        said = "".join(turn["text"] for turn in shown["turns"])
        assert (
            "".join(tokens["texts"]).startswith(said[:30])
            and shown["prompt_text"] == ("You are careful.\nWhat is " + row["task_id"].rpartition(" #")[0] + "?")
        ) or row["env"] != "python_math"
