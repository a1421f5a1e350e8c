"""Workers get the tensors of a batch and what engines read; the records of episodes stay in TransferQueue."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import verl
from verl.utils import transferqueue_utils

from verl_agentic.verl.engine.worker_columns import RECORDS, fetch_without_records

_COLUMNS = ["advantages", "extra_fields", "input_ids", "multi_modal_inputs", "raw_prompt", "turn_ids", "uid"]


def batch(names: list[str]) -> SimpleNamespace:
    return SimpleNamespace(field_names=names, select_fields=batch)


@pytest.mark.parametrize("has_columns", [True, False])
async def test_a_worker_gets_no_records(has_columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(meta: Any) -> list[str]:
        return meta.field_names

    async def with_columns(meta: Any) -> Any:
        return batch(_COLUMNS)

    monkeypatch.setattr(transferqueue_utils, "async_kv_batch_meta2batch_meta", with_columns)
    meta = batch(_COLUMNS) if has_columns else SimpleNamespace(keys=["a"])
    fetched = await fetch_without_records(fetch, meta)
    assert fetched == ["advantages", "input_ids", "multi_modal_inputs", "turn_ids", "uid"]


def test_no_engine_and_no_loss_of_verl_reads_a_record() -> None:
    folder = Path(verl.__path__[0]) / "workers"
    files = [*(folder / "engine").rglob("*.py"), folder / "engine_workers.py", *(folder / "utils").glob("*.py")]
    assert len(files) > 10
    reads = re.compile(rf"(?:data|batch|td)(?:\[|\.get\(|\.pop\(|, key=|, )[\"']({'|'.join(RECORDS)})[\"']")
    found = {(file.name, match[1]) for file in files for match in reads.finditer(file.read_text())}
    assert not found
    assert any('micro_batch["input_ids"]' in file.read_text() for file in files), "the pattern finds what is read"
