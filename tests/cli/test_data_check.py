"""`verl-agentic data check` and `data split`, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.cli import main
from verl_agentic.data.overlap.find_overlaps import find_overlaps
from verl_agentic.data.prepare import read_records, to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.reader import write_run


def rows(count: int) -> list[dict[str, Any]]:
    package = load_env_package("python_math")
    assert package.make_rows is not None
    made = package.make_rows(split="train", count=count, seed=0)
    return to_records(made, env_id="python_math", split="train", agent_name="env_agent")


def test_check_reports_drops_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, (train, val, rest) = rows(40), (tmp_path / f"{name}.parquet" for name in ("train", "val", "rest"))
    write_parquet(records[:30], train)
    write_parquet(records[25:], val)
    command = ["data", "check", str(train), "--against", str(val), "--jobs", "1"]
    assert main([*command, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["against"], result["repeated"], result["leaked"]) == (30, 15, 5, 5)
    assert result["counts"][0]["rows"] == 5 and result["counts"][0]["source"] == records[0]["data_source"]
    assert result["pairs"][0]["row"] == f"{train}:25" and result["pairs"][0]["of"] == f"{val}:0"
    assert main([*command, "--max-overlap", "5", "--drop", str(rest)]) == 0
    assert "5 repeat another row" in capsys.readouterr().out
    assert read_records(rest) == records[:25]
    assert main(["data", "check", str(rest), "--against", str(val), "--jobs", "1"]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--drop", "rest.jsonl"],
        ["--drop", "train.parquet"],
        ["--against", "val.parquet", "--drop", "./val.parquet"],
        ["val.parquet", "--drop", "."],
        ["val.parquet", "more/val.parquet", "--drop", "rest"],
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more").mkdir()
    files = [Path(name) for name in ("train.parquet", "val.parquet", "more/val.parquet")]
    for number, file in enumerate(files):
        write_parquet(rows(3 + number), file)
    assert main(["data", "check", "train.parquet", *wrong]) == 2
    assert "got " in capsys.readouterr().err
    assert [len(read_records(file)) for file in files] == [3, 4, 5] and not Path("rest").exists()


def test_ground_truths_that_no_answer_can_meet_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = rows(3)
    for record, truth in zip(records, ("42", "see the figure", "#### 204"), strict=True):
        record["reward_model"] = {"ground_truth": truth}
    write_json_lines(records, tmp_path / "train.jsonl")
    command = ["data", "check", str(tmp_path / "train.jsonl"), "--jobs", "1", "--max-overlap", "9"]
    assert main([*command, "--reward", "math"]) == 1
    said = capsys.readouterr().err
    assert "train.jsonl:2: math: ground_truth" in said and "1 ground truths" in said
    assert main([*command, "--reward", "exact_match"]) == main(command) == 0


def test_an_interrupted_drop_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, is_kept: object, out: Path) -> None:
        out.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("verl_agentic.data.overlap.write_kept._write_parquet", interrupted)
    write_parquet(rows(3), tmp_path / "train.parquet")
    command = ["data", "check", str(tmp_path / "train.parquet"), "--jobs", "1"]
    assert main([*command, "--drop", str(tmp_path / "rest.parquet")]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]


def test_split_gives_disjoint_files_and_the_hardest_rows_to_rl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = rows(40)
    for record in records[:20]:  # each task twice: both copies stay on one side
        records.append({**record, "extra_info": {**record["extra_info"], "index": len(records)}})
    write_json_lines(records, tmp_path / "all.jsonl")
    played = [
        {"uid": f"{number}", "session": attempt, "task_id": record["extra_info"]["task_id"],
         "acc": float(attempt < number % 5)}
        for number, record in enumerate(records[:40])
        for attempt in range(4)
    ]  # fmt: skip
    write_run(tmp_path / "eval", trajectories=played)
    command = ["data", "split", str(tmp_path / "all.jsonl"), "--jobs", "1"]
    for extra in ([], ["--rates", str(tmp_path / "eval")]):
        assert main([*command, *extra]) == 0
        sft, rl = (tmp_path / f"all_{name}.jsonl" for name in ("sft", "rl"))
        counts = [len(read_records(path)) for path in (sft, rl)]
        assert sum(counts) == 60 and abs(counts[0] - 18) <= 2, counts
        assert not len(find_overlaps([sft], [rl]).leaked)
    rates = {record["extra_info"]["task_id"]: number % 5 for number, record in enumerate(records[:40])}
    of_sft, of_rl = ([rates[one["extra_info"]["task_id"]] for one in read_records(path)] for path in (sft, rl))
    assert min(of_sft) >= max(of_rl) and "mean pass rate 0.32 of 42" in capsys.readouterr().out
    assert main([*command, "--sft", "1.5"]) == 2
    assert sft.is_file() and rl.is_file()  # wrong options lose nothing


def test_an_interrupted_split_leaves_no_old_half_beside_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json_lines(rows(10), tmp_path / "all.jsonl")
    command = ["data", "split", str(tmp_path / "all.jsonl"), "--jobs", "1"]
    assert main(command) == 0
    replace = Path.replace

    def fill_the_disk(path: Path, target: Path) -> Path:
        if target.name == "all_rl.jsonl":
            raise OSError("no space left")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fill_the_disk)
    with pytest.raises(OSError, match="no space left"):
        main([*command, "--seed", "1"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.jsonl", "all_sft.jsonl"]
