"""`verl-agentic data import`: rows of small files in the form of published data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.cli import main
from verl_agentic.data.importing.formats import FORMATS
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.files.rows import read_rows

WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\nRemember to put your answer on its "
    'own line after "Answer:".'
)
PROGRAM = json.dumps({"inputs": ["1\n", "20\n", "300\n"], "outputs": ["2\n", "21\n", "301\n"]})
CASES = json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}])
RECORDS: Mapping[str, tuple[dict[str, Any], str, Any]] = {
    "aime": ({"Problem": "Count them.", "Answer": 33}, "Count them.", "33"),
    "dapo_math": (
        {
            "prompt": [{"role": "user", "content": WRAPPED.format("Add 1 and 2.")}],
            "reward_model": {"ground_truth": "3", "style": "rule"},
        },
        "Add 1 and 2.",
        "3",
    ),
    "deepscaler": ({"problem": "Halve it.", "answer": r"\frac{1}{2}", "solution": "..."}, "Halve it.", r"\frac{1}{2}"),
    "gsm8k": ({"question": "How many?", "answer": "6*2=<<6*2=12>>12\n#### 1,012"}, "How many?", "1012"),
    "math": (
        {"problem": "Root?", "solution": r"First \boxed{1}, so $\boxed{\frac{\sqrt{2}}{2}}$.", "level": "Level 1"},
        "Root?",
        r"\frac{\sqrt{2}}{2}",
    ),
    "search_r1": (
        {"question": "who built it?", "golden_answers": ["Ann", "Ann Lee"]},
        "who built it?",
        ["Ann", "Ann Lee"],
    ),
    "hotpotqa": ({"question": "Is it so?", "answer": "yes", "type": "comparison"}, "Is it so?", "yes"),
    "nq": ({"question": "who built it", "answer": ["Ann"]}, "who built it?", "Ann"),
    "apps": ({"question": "Add one.", "input_output": PROGRAM, "starter_code": ""}, "Add one.", json.loads(PROGRAM)),
    "deepcoder": (
        {"problem": "Add one.", "tests": CASES, "starter_code": "x = 1"},
        "x = 1",
        {"inputs": ["1"], "outputs": ["2"]},
    ),
    "livecodebench": (
        {"question_content": "Add one.", "public_test_cases": CASES, "private_test_cases": CASES, "metadata": "{}"},
        "Add one.",
        {"inputs": ["1", "1"], "outputs": ["2", "2"]},
    ),
}
"""Format -> a record, a part of the prompt, and the ground truth (without `fn_name`)."""


def imported(tmp_path: Path, name: str, records: Sequence[Mapping[str, Any]], *options: str) -> list[EnvRow]:
    file = tmp_path / "source.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    assert main(["data", "import", name, str(file), "--out", str(tmp_path / "out"), *options]) == 0
    return read_rows(tmp_path / "out" / "train.parquet")


def test_every_format_has_a_record_here() -> None:
    assert RECORDS.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_record_of_every_format_becomes_a_row_that_prepare_passes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, question, truth = RECORDS[name]
    (row,) = imported(tmp_path, name, [record])
    text = capsys.readouterr().out
    ground_truth = json.loads(row.ground_truth) if isinstance(truth, dict) else row.ground_truth
    assert question in row.prompt[-1].content and "Remember" not in row.prompt[-1].content
    assert ground_truth == ({**truth, "fn_name": None} if isinstance(truth, dict) else truth)
    assert row.data_source == name and row.extra["task_id"].startswith(f"{name}-")
    file, env = tmp_path / "out" / "train.parquet", FORMATS[name].env
    assert f"data.train_files={file} agentic.env={env}" in text
    config = ["--config", "run_tests=false"] if env == "code_tests" else []
    assert main(["prepare", env, "--check", str(file), *config]) == 0


def test_what_is_no_row_is_counted_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = RECORDS["gsm8k"][0]
    others = [
        {"question": "No mark?", "answer": "12"},
        {"question": "No number?", "answer": "#### twelve"},
        {"question": " ", "answer": "#### 1"},
        {"question": "Null?", "answer": None},
    ]
    rows = imported(tmp_path, "gsm8k", [record, *others, record])
    text = capsys.readouterr().out
    assert len(rows) == 1 and "train.parquet: 1 rows of gsm8k" in text
    assert "left out 3: no number behind ####\n" in text and "source.jsonl:2: no number" in text
    assert "left out 1: no question\n" in text and "left out 1: the question repeats an earlier one\n" in text


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("aime", "Answer", None),
        ("aime", "Answer", True),
        ("aime", "Answer", float("nan")),
        ("math", "solution", "It is 1."),
        ("math", "solution", r"\boxed{}"),
        ("deepscaler", "answer", "See the figure below."),
        ("hotpotqa", "answer", None),
        ("nq", "answer", ["", " "]),
        ("hotpotqa", "answer", "Ann \ud800"),
        ("apps", "input_output", ""),
    ],
)
def test_an_answer_that_nobody_can_give_makes_no_row(name: str, column: str, value: Any, tmp_path: Path) -> None:
    good = RECORDS[name][0]
    question = FORMATS[name].question
    named = next(key for key in question if key in good)
    assert len(imported(tmp_path, name, [good, {**good, named: "Another?", column: value}])) == 1


def test_a_file_without_any_row_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "source.jsonl"
    write_json_lines([{"question": "What?", "answer": "12"}], file)
    assert main(["data", "import", "gsm8k", str(file), "--out", str(tmp_path / "out")]) == 1
    assert "0 rows" in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_numbers_of_columns_with_gaps_are_whole(tmp_path: Path) -> None:
    rows = imported(tmp_path, "aime", [{"Problem": "A?", "Answer": 204.0}, {"Problem": "B?", "Answer": 2.5}])
    assert [row.ground_truth for row in rows] == ["204", "2.5"]


def test_columns_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"q": "How many?", "inner": {"a": "#### 7"}}]
    (row,) = imported(tmp_path, "gsm8k", records, "--question", "q", "--answer", "inner.a")
    assert row.ground_truth == "7"
    arguments = ["data", "import", "gsm8k", str(tmp_path / "source.jsonl"), "--out", str(tmp_path)]
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "must have the column question, got ['inner', 'q']; name another with --question" in message


def test_files_may_have_different_columns_and_parquet_is_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    truth = {"target": ["Ann"]}
    pq.write_table(pa.Table.from_pylist([{"question": "who?", "reward_model": {"ground_truth": truth}}]),
                   tmp_path / "a.parquet")  # fmt: skip
    write_json_lines([{"question": "where?", "golden_answers": ["Rome", "Roma"]}], tmp_path / "b.jsonl")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.jsonl")]
    assert main(["data", "import", "search_r1", *files, "--split", "test", "--out", str(tmp_path)]) == 0
    assert [row.ground_truth for row in read_rows(tmp_path / "test.parquet")] == ["Ann", ["Rome", "Roma"]]


def test_a_saved_data_set_is_read_and_its_splits_must_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    saved = datasets.Dataset.from_list([RECORDS["gsm8k"][0]])
    datasets.DatasetDict({"train": saved}).save_to_disk(str(tmp_path / "set"))
    out = str(tmp_path / "out")
    assert main(["data", "import", "gsm8k", str(tmp_path / "set" / "train"), "--out", out]) == 0
    assert [row.ground_truth for row in read_rows(tmp_path / "out" / "train.parquet")] == ["1012"]
    assert main(["data", "import", "gsm8k", str(tmp_path / "set"), "--out", out]) == 2
    assert "several splits, got ['train']; name one" in capsys.readouterr().err
    assert main(["data", "import", "gsm8k", str(tmp_path), "--out", out]) == 2
    assert "a folder must be one of Dataset.save_to_disk" in capsys.readouterr().err


def test_public_tests_do_not_score_and_the_longest_of_the_others_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"question": "One?", "input_output": json.dumps({"inputs": ["1"], "outputs": ["1"]})}
    options = ("--public-tests", "1", "--max-tests", "1")
    (row,) = imported(tmp_path, "apps", [RECORDS["apps"][0], small], *options)
    text = capsys.readouterr().out
    assert json.loads(row.extra["public_tests"])["inputs"] == ["1\n"]
    assert json.loads(row.ground_truth)["inputs"] == ["300\n"] and "run_tests" in row.prompt[0].content
    assert "left out 1: too few tests" in text
    assert "agentic.env_config.prelude=true agentic.env_config.run_tests=true" in text


def test_a_function_is_named_in_the_prompt(tmp_path: Path) -> None:
    tests = {"fn_name": "add_one", "inputs": [[1]], "outputs": [[2]]}
    (row,) = imported(tmp_path, "apps", [{"question": "Add one.", "input_output": json.dumps(tests)}])
    assert row.prompt[-1].content == "Add one.\n\nWrite the function add_one."


def test_options_of_programs_are_refused_for_other_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["data", "import", "nq", str(tmp_path / "x.jsonl"), "--out", str(tmp_path), "--max-tests", "1"]
    assert main(arguments) == 2
    assert "are for programming tasks, got the format nq" in capsys.readouterr().err
