"""Contract of the readers of benchmark files: rows in their formats, written for this test."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from verl_agentic import ConfigError, DataError, StopReason, Transcript
from verl_agentic.base.types import Action

from .env import make_env
from .question_files import decrypt
from .rows import make_rows


def encrypt(text: str, password: str) -> str:
    key = hashlib.sha256(password.encode()).digest()
    return base64.b64encode(bytes(b ^ key[i % len(key)] for i, b in enumerate(text.encode()))).decode()


GAIA: dict[str, Any] = {
    "task_id": "c61d22de", "Question": "How many boats are in the harbour?", "Level": 1, "Final answer": "3",
    "file_name": "", "Annotator Metadata": {"Steps": "1. Look."},
}  # fmt: skip
CANARY = "BrowseComp:0000"
COMP = {
    "problem": encrypt("Who painted the café?", CANARY), "answer": encrypt("Noé", CANARY), "canary": CANARY,
    "problem_topic": "Art",
}  # fmt: skip


def write(path: Path, records: list[dict[str, Any]]) -> str:
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, records)) + "\n")
    elif path.suffix == ".json":
        path.write_text(json.dumps(records))
    elif path.suffix == ".parquet":
        pandas.DataFrame(records).to_parquet(path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    return str(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".json"])
def test_gaia_without_the_questions_that_need_a_file(tmp_path: Path, suffix: str, caplog: Any) -> None:
    file = write(tmp_path / f"metadata{suffix}", [GAIA, {**GAIA, "task_id": "b", "file_name": "b.xlsx"}])
    (row,) = make_rows(split="test", count=1, seed=0, file=file, form="gaia")
    assert (row.ground_truth, row.extra["task_id"], row.extra["level"]) == ("3", "gaia-c61d22de", "1")
    assert row.prompt[0].content.startswith("How many boats are in the harbour?\n\n")
    assert "1 of 2" in caplog.text
    with pytest.raises(ConfigError, match="count"):
        make_rows(split="test", count=2, seed=0, file=file, form="gaia")
    with pytest.raises(ConfigError, match="'train'"):
        make_rows(split="train", count=1, seed=0, file=file, form="gaia")


def test_browsecomp_is_decrypted_with_the_canary_of_the_row(tmp_path: Path) -> None:
    file = write(tmp_path / "browse_comp_test_set.csv", [COMP])
    (row,) = make_rows(split="test", count=1, seed=0, file=file, form="browsecomp")
    assert row.prompt[0].content.startswith("Who painted the café?") and row.ground_truth == "Noé"
    assert "café" not in Path(file).read_text()
    wrong = write(tmp_path / "wrong.csv", [{**COMP, "canary": "another"}])
    with pytest.raises(DataError, match=r"wrong\.csv"):
        make_rows(split="test", count=1, seed=0, file=wrong, form="browsecomp")
    with pytest.raises(DataError, match="must be encrypted"):
        decrypt("plain text", CANARY)


def test_the_cipher_is_sha256_and_xor() -> None:
    # SHA-256 of "abc" begins with ba 78 16 (FIPS 180-2, appendix B.1).
    assert (
        decrypt(base64.b64encode(bytes([0xBA ^ ord("h"), 0x78 ^ ord("i"), 0x16 ^ ord("!")])).decode(), "abc") == "hi!"
    )


@pytest.mark.parametrize(
    ("column", "value", "truth"),
    [("answer", "Oked", "Oked"), ("golden_answers", ["Oked", "the Oked"], ["Oked", "the Oked"]), ("answer", 7, "7")],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_questions_with_one_or_several_answers(
    tmp_path: Path, column: str, value: Any, truth: Any, suffix: str
) -> None:
    file = write(tmp_path / f"fictional{suffix}", [{"id": 9, "question": "Which river?", column: value}])
    (row,) = make_rows(split="test", count=1, seed=0, file=file)
    assert (row.ground_truth, row.extra["task_id"]) == (truth, "qa-9")


@pytest.mark.parametrize("criteria", [["names a hotel", {"criterion": "has dates", "weight": 2}], "names a hotel"])
async def test_open_questions_have_criteria_and_are_left_to_a_judge(tmp_path: Path, criteria: Any) -> None:
    file = write(tmp_path / "travel.jsonl", [{"query": "Plan a trip.", "rubric": criteria}])
    (row,) = make_rows(split="test", count=1, seed=0, file=file, form="criteria")
    assert row.prompt[0].content == "Plan a trip." and "names a hotel" in row.ground_truth
    assert isinstance(criteria, str) or '- {"criterion": "has dates", "weight": 2}' in row.ground_truth
    env = make_env(row, metric="rubric")
    await env.start()
    action = Action(turn=0, text="A plan.", content="A plan.")
    assert (await env.step(action)).stop is StopReason.ANSWERED
    transcript = Transcript(messages=row.prompt, actions=(action,), stop_reason=StopReason.ANSWERED)
    assert not (await env.score(transcript)).is_scored


@pytest.mark.parametrize(
    ("name", "content", "form", "message"),
    [
        ("a.jsonl", '{"Question": "x"}', "gaia", "Final answer"),
        ("a.jsonl", '{"Question": "x", "Final answer": "?"}', "gaia", "of GAIA's test split is hidden"),
        ("a.csv", "problem,answer\nx,y\n", "browsecomp", "canary"),
        ("a.jsonl", '{"question": "x"}', "qa", "golden_answers"),
        ("a.jsonl", '{"question": "x"}', "criteria", "rubric"),
        ("a.jsonl", '{"question": "x", "answer": []}', "qa", "must be a text or a list of texts"),
        ("a.jsonl", "", "qa", "must have questions, got 0 rows"),
        ("a.json", '{"question": "x"}', "qa", "must hold a list of JSON objects, got dict"),
        ("a.jsonl", "no json", "qa", "cannot read a file of questions"),
        ("a.txt", "x", "qa", r"\.csv"),
    ],
)  # fmt: skip
def test_other_files_are_refused_with_the_column(
    tmp_path: Path, name: str, content: str, form: Any, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        make_rows(split="test", count=1, seed=0, file=str(tmp_path / name), form=form)
