"""function_calling as a package: found by its id, and its rows survive the files that verl reads them from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.types import Action, Message
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import read_rows, write_rows

PACKAGE = load_env_package("function_calling")
assert PACKAGE.make_rows is not None and PACKAGE.gold is not None
ROWS = PACKAGE.make_rows(split="test", count=14, seed=4)


async def solve(row: EnvRow) -> float:
    assert PACKAGE.gold is not None
    env, policy = PACKAGE.make_env(row), PACKAGE.gold(row)
    messages: list[Message] = list(await env.start())
    actions: list[Action] = []
    stop = None
    while stop is None:
        said = policy(messages)
        actions.append(Action(turn=len(actions), text="", content=said.content, tool_calls=said.tool_calls))
        observation = await env.step(actions[-1])
        messages += [said, *observation.messages]
        stop = observation.stop
    reward = await env.score(Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=stop))
    await env.close()
    return reward.outcome


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.extra["case"])
async def test_rows_of_different_tools_survive_parquet_and_json_lines(row: EnvRow, tmp_path: Path) -> None:
    write_rows(ROWS, tmp_path / "rows.jsonl")
    table = pa.Table.from_pylist([{"extra_info": dict(r.extra), "ground_truth": r.ground_truth} for r in ROWS])
    pq.write_table(table, tmp_path / "rows.parquet")
    index = ROWS.index(row)
    stored = pq.read_table(tmp_path / "rows.parquet").to_pylist()[index]
    from_parquet = replace(row, extra=stored["extra_info"], ground_truth=stored["ground_truth"])
    from_lines = read_rows(tmp_path / "rows.jsonl")[index]
    for read in (from_parquet, from_lines):
        assert json.loads(read.extra["tools"]) == json.loads(row.extra["tools"])
        assert await solve(read) == 1.0


async def test_the_policy_sees_the_schemas_as_the_row_gives_them() -> None:
    for row in ROWS:
        assert [tool.schema for tool in PACKAGE.make_env(row).tools] == json.loads(row.extra["tools"])


async def test_siblings_do_not_share_what_they_did() -> None:
    row = next(row for row in ROWS if row.extra["case"] == "single")
    assert [await solve(row), await solve(row)] == [1.0, 1.0]
