"""Files of rows, as preflight reads them."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl")

from verl_agentic.base.errors import DataError
from verl_agentic.data.file_checks import check_records
from verl_agentic.log.files.record_files import numbered_records, write_json_lines
from verl_agentic.verl.extensions.preflight.rows_as_verl import _write_head, row_faults

DAY = datetime.date(2024, 1, 2)


def record(truth: str, *, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    prompt = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "user", "content": "q"}]
    return {"prompt": prompt, "reward_model": {"ground_truth": truth}}


def test_changed_values_and_filled_nulls_are_faults_of_rows(tmp_path: Path) -> None:
    records = [
        record("2024-01-02", name="ls", arguments={"dir": "/"}),
        record("2024-01-03", name="rm", arguments={"path": "b"}),
    ]
    write_json_lines(records, tmp_path / "rows.jsonl")
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "rows.parquet")
    (changed,) = row_faults([str(tmp_path / "rows.jsonl")])
    assert "reward_model.ground_truth is '2024-01-02'" in changed
    nulls = row_faults([str(tmp_path / "rows.parquet")])
    assert ["the call of ls" in nulls[0], "the call of rm" in nulls[1]] == [True, True]


@pytest.mark.parametrize("truth", [DAY, decimal.Decimal("1.5"), b"a", [DAY]])
def test_ground_truths_that_are_no_json_are_faults_of_rows(tmp_path: Path, truth: Any) -> None:
    columns = {"prompt": [{"role": "user", "content": "q"}], "data_source": "d", "agent_name": "a"}
    records = [{**columns, "reward_model": {"ground_truth": truth}, "extra_info": {"index": 0}}]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "rows.parquet")
    (fault,) = row_faults([str(tmp_path / "rows.parquet")])
    assert "reward_model.ground_truth" in fault and "as text" in fault
    with pytest.raises(DataError, match=r"reward_model\.ground_truth"):
        asyncio.run(check_records(records, tools_of=lambda _: pytest.fail("no tools are named")))


def test_the_first_rows_have_the_types_of_all_rows(tmp_path: Path) -> None:
    truths = ["2024-01-02"] * 10 + ["unknown"]
    write_json_lines([{"reward_model": {"ground_truth": truth}} for truth in truths], tmp_path / "rows.jsonl")
    head = [row for _, row in numbered_records(_write_head(tmp_path / "rows.jsonl", tmp_path))]
    assert [row["reward_model"]["ground_truth"] for row in head] == ["2024-01-02"] * 8
