"""Rows for verl: what its dataset reads of them, and which rows are refused, by row and field."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, ToolResult
from verl_agentic.data.file_checks import check_records
from verl_agentic.data.prepare import make_rows, read_records, to_records, tools_of, write_parquet
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.log.files.rows import row_of_columns


class NamedTool:
    schema: Any = None

    def __init__(self, name: str) -> None:
        self.name = name

    async def call(self, arguments: Any) -> ToolResult:
        return ToolResult("")


class TwoTools(ToolEnv):
    started = closed = 0

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [NamedTool("calc"), NamedTool("find")])

    async def start(self) -> tuple[Message, ...]:
        TwoTools.started += 1
        return await super().start()

    async def close(self) -> None:
        TwoTools.closed += 1


def rows_of(*, split: str, count: int, seed: int, level: int = 1) -> list[EnvRow]:
    return [
        EnvRow(
            prompt=(Message("user", f"{split} {i}"),),
            ground_truth={"n": i} if i % 2 else [i],
            data_source="two",
            extra={"task_id": f"{split}{i}", "level": level, **({"only_odd": {"x": i}} if i % 2 else {})},
        )
        for i in range(count)
    ]


PACKAGE = EnvPackage(env_id="two", folder=Path(), make_env=TwoTools, make_rows=rows_of, gold=None, demonstrator=None)
NAMES = tools_of(PACKAGE, {})


def records_of(count: int = 4, **options: Any) -> list[dict[str, Any]]:
    rows = rows_of(split="train", count=count, seed=0)
    return to_records(rows, **{"env_id": "two", "split": "train", "agent_name": "env_agent", **options})


def check(records: Sequence[dict[str, Any]], **options: Any) -> None:
    asyncio.run(check_records(records, **{"tools_of": NAMES, **options}))


def test_rows_have_the_columns_that_verl_and_the_agent_loop_read() -> None:
    record = records_of()[1]
    assert record == {
        "data_source": "two",
        "prompt": [{"role": "user", "content": "train 1"}],
        "reward_model": {"style": "rule", "ground_truth": '{"n": 1}', "format": "json"},
        "extra_info": {
            "task_id": "train1",
            "split": "train",
            "env": "two",
            "tool_selection": [],
            "extra_json": '{"level": 1, "only_odd": {"x": 1}}',
            "index": 1,
        },
        "agent_name": "env_agent",
    }


def test_what_verls_dataset_reads_of_the_file_is_the_row_that_was_made(
    tmp_path: Path, tiny_chat: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verl")
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from verl_agentic.log.files.parquet import env_row

    path = tmp_path / "train.parquet"
    write_parquet(records_of(), path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    config = OmegaConf.create(
        {"cache_dir": str(tmp_path), "max_prompt_length": 100, "filter_overlong_prompts_workers": 1}
    )
    dataset = RLHFDataset(str(path), tokenizer=tiny_chat[0], config=config)
    assert len(dataset) == 4
    for index, row in enumerate(rows_of(split="train", count=4, seed=0)):
        item = dataset[index]
        assert (item["agent_name"], item["index"]) == ("env_agent", index)
        played = env_row(item)
        assert (played.prompt, played.ground_truth, played.data_source) == (row.prompt, row.ground_truth, "two")
        more = {"split": "train", "env": "two", "tool_selection": [], "index": index}
        assert played.extra == {**row.extra, **more}


def test_files_of_different_environments_have_the_same_columns_and_can_be_read_as_one(tmp_path: Path) -> None:
    import datasets
    import pyarrow.parquet as pq

    math = load_env_package("python_math")
    paths = [tmp_path / "two.parquet", tmp_path / "math.parquet"]
    rows = make_rows(math, split="train", count=3, seed=0)
    write_parquet(records_of(tool_selection=["find"]), paths[0])  # all others: a list that is always empty
    write_parquet(to_records(rows, env_id="python_math", split="train", agent_name="env_agent"), paths[1])
    assert pq.read_schema(paths[0]) == pq.read_schema(paths[1])
    parts = [
        datasets.load_dataset("parquet", data_files=str(p), cache_dir=str(tmp_path / "cache"))["train"] for p in paths
    ]
    both = datasets.concatenate_datasets(parts)
    assert [row["extra_info"]["env"] for row in both] == ["two"] * 4 + ["python_math"] * 3
    assert row_of_columns(both[0], "row").ground_truth == [0]
    assert row_of_columns(both[4], "row").ground_truth == rows[0].ground_truth


def test_tools_are_those_that_are_asked_for_or_that_the_row_selects() -> None:
    assert records_of(tool_selection=["find"])[0]["extra_info"]["tool_selection"] == ["find"]
    own = [replace(rows_of(split="t", count=1, seed=0)[0], extra={"tool_selection": ["calc"]})]
    (record,) = to_records(own, env_id="two", split="train", agent_name="a")
    assert record["extra_info"]["tool_selection"] == ["calc"]
    env = TwoTools(row_of_columns(record, "row"))
    assert [tool.name for tool in env.tools] == ["calc"]
    with pytest.raises(ConfigError, match="'nope'"):
        TwoTools(replace(own[0], extra={"tool_selection": ["nope"]}))


def test_good_rows_pass_and_cost_no_environment_unless_they_name_tools() -> None:
    TwoTools.started = TwoTools.closed = 0
    check(records_of())
    assert TwoTools.started == 0
    check(records_of(tool_selection=["calc", "find"]))
    assert (TwoTools.started, TwoTools.closed) == (4, 4)


def spoil(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Returns what sets a field of a record, or removes it."""

    def change(record: dict[str, Any]) -> None:
        *folders, name = path.split(".")
        for folder in folders:
            record = record[folder]
        if value is ...:
            del record[name]
        else:
            record[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil("prompt", []), "prompt: must be a list of messages, got []"),
        (spoil("prompt", None), "prompt: must be a list of messages, got None"),
        (spoil("prompt", [{"role": "user", "content": " \n"}]), "prompt: has no text, got only empty messages"),
        (spoil("prompt", [{"role": "robot", "content": "x"}]), "prompt: unknown message role, got 'robot'"),
        (spoil("prompt", [{"role": "assistant", "content": "x"}]), "prompt: ends with a message of the assistant"),
        (spoil("data_source", ""), "data_source: must be a text, got ''"),
        (spoil("agent_name", ...), "agent_name: must be a text, got None"),
        (spoil("reward_model", None), "reward_model: must be an object, got None"),
        (spoil("reward_model.ground_truth", None), "reward_model.ground_truth: is missing, got None"),
        (spoil("reward_model", {"ground_truth": ""}), "reward_model.ground_truth: is missing, got ''"),
        (spoil("reward_model.ground_truth", "{"), "reward_model.ground_truth is not JSON"),
        (spoil("extra_info", None), "extra_info: must be an object, got None"),
        (spoil("extra_info.index", None), "extra_info.index: must be a number, got None"),
        (spoil("extra_info.index", 0), "extra_info.index: row 0 has 0, too"),
        (spoil("extra_info.extra_json", "["), "extra_info.extra_json is not JSON"),
        (spoil("extra_info.tools_kwargs", {"calc": None}), "extra_info.tools_kwargs.calc: is None; Arrow fills in"),
        (
            spoil("extra_info.tools_kwargs", {"calc": {"create_kwargs": {"a": 1, "b": None}}}),
            "extra_info.tools_kwargs.calc.create_kwargs.b: is None",
        ),
        (spoil("extra_info.tool_selection", ["calc", "nope"]), "extra_info.tool_selection: the environment has no tool "
                                                               "'nope'; it has ['calc', 'find']"),
        (spoil("extra_info.tools_kwargs", {"nope": {"a": 1}}), "extra_info.tools_kwargs: the environment has no tool "),
    ],
)  # fmt: skip
def test_a_row_that_would_break_is_refused_by_row_and_field(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    records = copy.deepcopy(records_of())
    change(records[2])
    with pytest.raises(DataError) as refused:
        check(records, location="train: ")
    text = str(refused.value)
    assert "got 1 problems" in text and f"train: row 2, {message}" in text


def test_rows_that_their_environment_scores_without_ground_truth_pass_and_can_be_joined(tmp_path: Path) -> None:
    import datasets

    rows = [replace(row, ground_truth=None) for row in rows_of(split="train", count=3, seed=0)]
    mixed = [*rows[:2], *rows_of(split="test", count=2, seed=0)]
    for number, written in enumerate((rows, mixed, rows_of(split="train", count=2, seed=0))):
        records = to_records(written, env_id="two", split="train", agent_name="env_agent")
        write_parquet(records, tmp_path / f"{number}.parquet")
        read = read_records(tmp_path / f"{number}.parquet")
        check(read)
        assert [row_of_columns(one, "row").ground_truth for one in read] == [row.ground_truth for row in written]
    paths = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    joined = [datasets.load_dataset("parquet", data_files=path, cache_dir=str(tmp_path))["train"] for path in paths]
    assert len(datasets.concatenate_datasets(joined)) == 9


@pytest.mark.parametrize("is_column", [True, False])
def test_rows_of_verl_that_all_leave_the_agent_loop_to_the_run_are_fine(is_column: bool) -> None:
    check([{**record, "agent_name": None} if is_column else _without(record, "agent_name") for record in records_of()])


def _without(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != key}


def test_all_problems_are_counted_equal_ones_once_and_the_first_ones_listed() -> None:
    records = copy.deepcopy(records_of(count=30))
    for record in records:
        record["data_source"] = None
    with pytest.raises(DataError, match=r"got 30 problems; fix them:\n30 x data_source: .* row 0$"):
        check(records)
    for number, record in enumerate(records):
        record["data_source"] = number
    with pytest.raises(DataError, match=r"got 30 problems; fix them:\nrow 0, data_source.*\n(.*\n)*\.\.\. and 20 more"):
        check(records)
    with pytest.raises(DataError, match="has no rows"):
        check([])


def test_an_environment_that_does_not_start_is_a_problem_of_its_row() -> None:
    async def broken(row: EnvRow) -> set[str]:
        raise ConfigError("no such sandbox, got x; use another")

    with pytest.raises(DataError, match="extra_info"):
        check(records_of(count=1, tool_selection=["calc"]), tools_of=broken)


def test_a_file_that_arrow_would_fill_is_not_written(tmp_path: Path) -> None:
    records = copy.deepcopy(records_of())
    records[1]["extra_info"]["tools_kwargs"] = {"calc": {"a": 1}}
    path = tmp_path / "train.parquet"
    with pytest.raises(DataError, match=r"extra_info\.tools_kwargs"):
        write_parquet(records, path)
    assert list(tmp_path.iterdir()) == []
    records[1]["extra_info"]["tools_kwargs"] = "text"
    records[2]["extra_info"]["tools_kwargs"] = 7
    with pytest.raises(DataError, match="columns"):
        write_parquet(records, path)


def test_records_are_read_from_parquet_and_from_json_lines(tmp_path: Path) -> None:
    records = records_of()
    write_parquet(records, tmp_path / "a.parquet")
    assert read_records(tmp_path / "a.parquet") == records
    from verl_agentic.log.files.record_files import write_json_lines

    write_json_lines(records, tmp_path / "a.jsonl")
    assert read_records(tmp_path / "a.jsonl") == records
    (tmp_path / "b.parquet").write_text("no")
    for name, message in (("b.parquet", "reading .*b.parquet failed"), ("c.parquet", "no such data file")):
        with pytest.raises(DataError, match=message):
            read_records(tmp_path / name)


def test_options_reach_the_environments_rows_and_unknown_ones_are_refused() -> None:
    rows = make_rows(PACKAGE, split="test", count=2, seed=0, options={"level": 3})
    assert [row.extra["level"] for row in rows] == [3, 3]
    with pytest.raises(ConfigError, match="'colour'"):
        make_rows(PACKAGE, split="test", count=2, seed=0, options={"colour": 3})
    with pytest.raises(ConfigError, match="cannot make rows"):
        make_rows(replace(PACKAGE, make_rows=None), split="test", count=2, seed=0)
    with pytest.raises(ConfigError, match="count"):
        make_rows(load_env_package("python_math"), split="test", count=10**6, seed=0)
