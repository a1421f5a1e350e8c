"""`verl-agentic prepare`: files for verl, and the check of files that are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_agentic.cli import main
from verl_agentic.data.prepare import read_records, write_parquet
from verl_agentic.data.rows import row_of_columns
from verl_agentic.env_package import load_env_package


def test_both_splits_are_written_with_the_command_line_that_uses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows"
    assert main(["prepare", "python_math", "--out", str(out), "--train", "5", "--test", "2", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert f"data.train_files={out / 'train.parquet'} data.val_files={out / 'test.parquet'}" in shown
    train, test = (read_records(out / f"{split}.parquet") for split in ("train", "test"))
    assert (len(train), len(test)) == (5, 2)
    make_rows = load_env_package("python_math").make_rows
    assert make_rows is not None
    for split, records in (("train", train), ("test", test)):
        rows = make_rows(split=split, count=len(records), seed=3)
        for row, record in zip(rows, records, strict=True):
            read = row_of_columns(record, "row")
            assert (read.prompt, read.ground_truth) == (row.prompt, row.ground_truth)
            info = record["extra_info"]
            assert (info["split"], info["env"], record["agent_name"]) == (split, "python_math", "env_agent")


def test_a_split_of_no_rows_is_left_out_and_tools_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", "python_math", "--out", str(tmp_path), "--train", "2", "--test", "0"]
    assert main([*arguments, "--tools", "python", "--agent-name", "mine"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]
    record = read_records(tmp_path / "train.parquet")[0]
    assert (record["extra_info"]["tool_selection"], record["agent_name"]) == (["python"], "mine")
    assert "val_files" not in capsys.readouterr().out


def test_tools_that_do_not_exist_options_that_are_unknown_and_too_many_rows_are_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", "python_math", "--out", str(tmp_path / "x"), "--train", "2"]
    for more, message in (
        (["--tools", "python,nope"], "train: row 0, extra_info.tool_selection: the environment has no tool 'nope'"),
        (["--option", "level=3"], "unknown options of the rows of 'python_math', got ['level']"),
        (["--option", "level"], "--option takes KEY=VALUE, each key once, got 'level'"),
        (["--test", "10000000"], "making 10000000 test rows"),
        (["--agent-name", ""], "train: row 0, agent_name: must be a text, got ''"),
    ):
        assert main([*arguments, *more]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_path_of_an_environment_is_recorded_so_that_any_worker_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["env", "new", "shop", "--dir", str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "./shop", "--train", "2", "--test", "1"]) == 0
    record = read_records(tmp_path / "data" / "shop" / "train.parquet")[0]
    assert record["extra_info"]["env"] == str(tmp_path / "shop")
    assert row_of_columns(record, "row").extra["stock"]


def test_files_are_checked_by_name_row_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "python_math", "--out", str(tmp_path), "--train", "3", "--test", "1"])
    good, bad = tmp_path / "train.parquet", tmp_path / "bad.parquet"
    records = read_records(good)
    for record in records:
        record["extra_info"]["tools_kwargs"] = {"python": {"a": 1}, "calc": None}
    write_parquet(records, bad)
    capsys.readouterr()
    assert main(["prepare", "python_math", "--check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: 3 rows, fine\n"
    assert main(["prepare", "python_math", "--check", str(good), str(bad)]) == 2
    assert f"{bad}: row 0, extra_info.tools_kwargs.calc: is None" in capsys.readouterr().err


def test_rows_that_an_evaluation_always_or_never_solved_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", "python_math", "--train", "4", "--test", "2"]
    assert main([*arguments, "--out", str(tmp_path / "all")]) == 0
    tasks = [record["extra_info"]["task_id"] for record in read_records(tmp_path / "all" / "train.parquet")]
    outcomes = {tasks[0]: (1.0, 1.0), tasks[1]: (0.0, 0.0), tasks[2]: (1.0, 0.0)}  # the fourth was not played
    lines = [
        json.dumps({"key": f"{task}/{n}", "task": "x", "task_id": task, "outcome": outcome, "void": False})
        for task, both in outcomes.items()
        for n, outcome in enumerate(both)
    ]
    played = tmp_path / "episodes.jsonl"
    played.write_text("\n".join(lines))
    assert main([*arguments, "--out", str(tmp_path / "kept"), "--learnable", str(played)]) == 0
    kept = [record["extra_info"]["task_id"] for record in read_records(tmp_path / "kept" / "train.parquet")]
    assert kept == tasks[2:] and len(read_records(tmp_path / "kept" / "test.parquet")) == 2
    assert "2 of 4 training rows are left out" in capsys.readouterr().out
    played.write_text(lines[0])
    assert main([*arguments, "--out", str(tmp_path / "none"), "--learnable", str(played)]) == 2
    assert "none of the 4 tasks has 2 attempts that count" in capsys.readouterr().err
