"""No writer of JSON lines leaves a file in which verl's dataset would make times of texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message
from verl_agentic.data.datasets.sft import write_sft
from verl_agentic.data.export.write_records import write_records
from verl_agentic.data.making.make_data import _write_unrepeated
from verl_agentic.data.making.mix_files import mix_files
from verl_agentic.data.proposer_env import append_proposal
from verl_agentic.log.files.as_verl import changed_values
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.files.rows import read_rows

DATES = ["2024-01-02", "2024-01-03 10:00"]


def export(texts: list[str], out: Path) -> None:
    write_records([{"text": text} for text in texts], out, columns={"text": pa.string()})


def mix(texts: list[str], out: Path) -> None:
    source = out.with_name("source.parquet")
    export(texts, source)
    mix_files({source: 1.0}, out)


def make(texts: list[str], out: Path) -> None:
    rows = {str(number): {"question": f"Question {number}?", "text": text} for number, text in enumerate(texts)}
    _write_unrepeated(rows, out, [], keeps_near=True)


@pytest.mark.parametrize("write", [export, mix, make])
def test_columns_of_dates_are_refused_and_others_arrive(write: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'text'"):
        write(DATES, tmp_path / "rows.jsonl")
    assert not list(tmp_path.glob("rows*"))
    write([*DATES, "unknown"], tmp_path / "rows.jsonl")
    read: list[dict[str, Any]] = [record for _, record in numbered_records(tmp_path / "rows.jsonl")]
    assert sorted(record["text"] for record in read) == [*DATES, "unknown"]


def test_marks_of_sft_rows_that_are_dates_are_refused(tmp_path: Path) -> None:
    from types import SimpleNamespace as Fake

    trajectory = Fake(token_ids=[1, 2], prompt_ids=[1], response_mask=[1])
    episodes: list[Any] = [Fake(is_void=False, trajectories=[trajectory])]
    with pytest.raises(DataError, match="'day'"):
        write_sft(episodes, tmp_path / "sft.jsonl", marks={"day": DATES[0]})
    assert not list(tmp_path.glob("sft*"))
    assert write_sft(episodes, tmp_path / "sft.jsonl", marks={"day": "monday"}) == 1


def test_a_proposed_task_whose_truth_is_a_date_arrives(tmp_path: Path) -> None:
    row = EnvRow(prompt=(Message("user", "When?"),), ground_truth=DATES[0], data_source="d", extra={"day": DATES[1]})
    append_proposal(tmp_path / "rows.jsonl", row, env_id="python_math")
    assert changed_values(tmp_path / "rows.jsonl") == []
    (read,) = read_rows(tmp_path / "rows.jsonl")
    assert (read.ground_truth, read.extra["day"]) == (DATES[0], DATES[1])


def test_exports_as_parquet_hold_dates(tmp_path: Path) -> None:
    export(DATES, tmp_path / "rows.parquet")
    assert [record["text"] for _, record in numbered_records(tmp_path / "rows.parquet")] == DATES
