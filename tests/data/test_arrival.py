"""All readers of rows get the values that each writer was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.checks.cli.dryrun.plan import _read_first_rows
from verl_agentic.data.export.shapes import SHAPES
from verl_agentic.data.export.write_records import write_records
from verl_agentic.data.overlap.chunks import chunks_of
from verl_agentic.data.prepare import to_records, write_parquet
from verl_agentic.log.files.as_verl import changed_values
from verl_agentic.log.files.parquet import decoded_columns, env_row, to_columns
from verl_agentic.log.files.plain_values import differences, to_plain
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.files.rows import read_rows, row_of_columns, write_rows

DATES = ("2024-01-02", "2024-01-02T10:00:00Z", "2024-01-02 10:00", "1999-12-31")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [*DATES, "10:00:00", "unknown", '{"a": 1}', "[1]", "1", "1.0", "null", "NaN", '"x"', "\u2028 é 😀", "a\nb\r\n"]
)
INTEGERS = st.integers() | st.sampled_from([2**63, -(2**63), 2**63 - 1, 2**70])
FLOATS = st.floats(allow_nan=False) | st.sampled_from([1.0, 0.12345678901234568, 1e16, -0.0])
NUMPY = st.sampled_from(
    [np.int64(3), np.float32(0.5), np.float64(2.0), np.bool_(True), np.str_("2024-01-02"), np.arange(3), np.array([]),
     np.array([[1.0, 2.5]]), np.array(["2024-01-02"])]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | TEXTS | INTEGERS | FLOATS | NUMPY
KEYS = st.sampled_from(["a", "b", "2024-01-02", "ü", "a.b", "null"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
COLUMNS = st.sampled_from(
    [st.sampled_from(DATES), TEXTS, INTEGERS, st.integers(0, 9), FLOATS, st.booleans(), VALUES, st.none(), NUMPY,
     st.lists(st.sampled_from(DATES), max_size=2), st.lists(TEXTS, max_size=2), st.just([]), st.just({})]
)  # fmt: skip
"""Strategies of which a column takes one, so that its values have the same type in many files."""
PROMPT_TEXTS = TEXTS.filter(bool)


@st.composite
def row_lists(draw: st.DrawFn) -> list[EnvRow]:
    truth = draw(COLUMNS)
    extra = {key: draw(COLUMNS) for key in draw(st.sets(st.sampled_from(["a", "b", "ü.c", "extra_json", "only"])))}
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        call = ToolCall("f", draw(st.dictionaries(KEYS, VALUES, max_size=2)), "c0")
        prompt = [Message("system", "Be brief."), Message("user", draw(PROMPT_TEXTS))]
        if draw(st.booleans()):
            prompt += [Message("assistant", "", tool_calls=(call,)), Message("tool", "1", name="f", call_id="c0")]
        kept = draw(st.sets(st.sampled_from(sorted(extra)))) if extra and draw(st.booleans()) else extra
        rows.append(
            EnvRow(
                prompt=tuple(prompt),
                ground_truth=draw(truth),
                data_source="made",
                extra={key: draw(extra[key]) for key in extra if key in kept},
            )
        )
    return rows


def write_prepared(rows: Sequence[EnvRow], path: Path) -> None:
    write_parquet(to_records(rows, env_id="e", split="train", agent_name="env_agent"), path)


def write_with_pandas(rows: Sequence[EnvRow], path: Path) -> None:
    pandas.DataFrame(to_columns(rows)).to_parquet(path)


def write_with_datasets(rows: Sequence[EnvRow], path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_list(to_columns(rows)).to_parquet(path)


WRITERS: Mapping[str, tuple[str, Callable[[Sequence[EnvRow], Path], Any]]] = {
    "json_lines": ("rows.jsonl", write_rows),
    "json": ("rows.json", write_rows),
    "parquet": ("rows.parquet", write_rows),
    "prepare": ("rows.parquet", write_prepared),
    "pandas": ("rows.parquet", write_with_pandas),
    "datasets": ("rows.parquet", write_with_datasets),
}


def verl_rows(path: Path, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of verl's dataset, as agent loops get them."""
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = OmegaConf.create({"cache_dir": str(path.parent), "filter_overlong_prompts": False})
    dataset = RLHFDataset(str(path), tokenizer=tokenizer, config=config)
    return (dataset[index] for index in range(len(dataset)))


def rewarded_rows(rows: Sequence[dict[str, Any]]) -> Iterator[EnvRow]:
    """Yields rows of the ground truth and `extra_info` that a reward function gets."""
    for row in map(decoded_columns, rows):
        prompt = tuple(map(Message.from_dict, row["raw_prompt"]))
        truth = row["reward_model"]["ground_truth"]
        yield EnvRow(prompt=prompt, ground_truth=truth, data_source=row["data_source"], extra=row["extra_info"])


def as_values(row: EnvRow, extra_keys: set[str]) -> dict[str, Any]:
    return {
        "prompt": to_plain([message.to_dict() for message in row.prompt], "prompt"),
        "truth": to_plain(row.ground_truth, "truth"),
        "extra": {key: value for key, value in to_plain(row.extra, "extra").items() if key not in extra_keys},
        "source": row.data_source,
    }


ADDED = {"index", "task_id", "split", "env", "tool_selection"}


@pytest.mark.slow
@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_row_arrives_as_it_was_written(
    writer: str, tiny_chat: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("verl")
    import datasets

    datasets.disable_progress_bars()
    name, write = WRITERS[writer]

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(row_lists())
    def check(rows: list[EnvRow]) -> None:
        with TemporaryDirectory(dir=tmp_path) as folder:
            monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", Path(folder) / "cache")
            path = Path(folder) / name
            write(rows, path)
            assert changed_values(path) == []
            expected = [as_values(row, ADDED) for row in rows]
            loaded = list(verl_rows(path, tiny_chat[0]))
            read = {
                "read_rows": read_rows(path),
                "verl": map(env_row, loaded),
                "reward": rewarded_rows(loaded),
                "data check": (
                    row_of_columns(record, where)
                    for where, record in chain.from_iterable(chunk.records() for chunk in chunks_of(path))
                )
                if path.suffix != ".json"
                else read_rows(path),
                "dryrun": _read_first_rows(str(path)),
            }
            for reader, found in read.items():
                values = [as_values(row, ADDED) for row in found]
                assert not list(differences(reader, expected, values))

    check()


TYPED = {
    pa.string(): st.none() | TEXTS,
    pa.bool_(): st.booleans(),
    pa.int32(): st.none() | st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.none() | st.floats(allow_nan=False, allow_infinity=False),
    pa.list_(pa.int32()): st.lists(st.integers(0, 2**31 - 1), max_size=4),
    pa.list_(pa.int8()): st.lists(st.integers(0, 1), max_size=4),
    pa.list_(pa.float32()): st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=4),
}


@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_export_arrives_as_it_was_written_or_is_refused(shape: str, suffix: str, tmp_path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    columns = SHAPES[shape]

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(st.fixed_dictionaries({name: TYPED[kind] for name, kind in columns.items()}), min_size=1, max_size=3)
    )
    def check(records: list[dict[str, Any]]) -> None:
        with TemporaryDirectory(dir=tmp_path) as folder:
            path = Path(folder) / f"export.{suffix}"
            try:
                write_records(records, path, columns=columns)
            except DataError:
                assert suffix == "jsonl"
                return
            assert changed_values(path) == []
            kind = "parquet" if suffix == "parquet" else "json"
            loaded = datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=f"{folder}/cache")
            for reader, found in (("ours", [record for _, record in numbered_records(path)]), ("datasets", loaded)):
                assert not list(differences(reader, records, list(found)))

    check()
