"""code_tests as a package: found by its id, with the sandbox that is asked for, from the files that verl reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_agentic.base.env import Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, StopReason
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import read_rows, write_rows

PACKAGE = load_env_package("code_tests")
assert PACKAGE.make_rows is not None and PACKAGE.gold is not None
ROWS = PACKAGE.make_rows(split="test", count=4, seed=1, families=["caesar", "merge_intervals"])


async def test_rows_of_both_kinds_survive_parquet_and_json_lines(tmp_path: Path) -> None:
    assert PACKAGE.gold is not None
    write_rows(ROWS, tmp_path / "rows.jsonl")
    table = pa.Table.from_pylist([{"extra_info": dict(r.extra), "ground_truth": r.ground_truth} for r in ROWS])
    pq.write_table(table, tmp_path / "rows.parquet")
    stored = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    read = [
        replace(r, extra=s["extra_info"], ground_truth=s["ground_truth"]) for r, s in zip(ROWS, stored, strict=True)
    ]
    for row in [*read[:2], *read_rows(tmp_path / "rows.jsonl")[2:]]:
        env = PACKAGE.make_env(row)
        called = PACKAGE.gold(row)(list(await env.start()))
        observation = await env.step(Action(turn=0, text="", content="", tool_calls=called.tool_calls))
        assert observation.messages[0].content == "All 3 public tests passed."
        said = PACKAGE.gold(row)([*row.prompt, called, Message("tool", "passed")])
        last = Action(turn=1, text=said.content, content=said.content)
        reward = await env.score(Transcript(messages=(), actions=(last,), stop_reason=StopReason.ANSWERED))
        assert reward.outcome == 1.0
        await env.close()


async def test_a_backend_can_be_named_and_one_that_is_too_weak_is_refused() -> None:
    assert PACKAGE.gold is not None
    env = PACKAGE.make_env(ROWS[0], sandbox="local")
    called = PACKAGE.gold(ROWS[0])(list(await env.start()))
    observation = await env.step(Action(turn=0, text="", content="", tool_calls=called.tool_calls))
    assert observation.messages[0].content == "All 3 public tests passed."
    with pytest.raises(ConfigError, match="local isolates by process_limits"):
        PACKAGE.make_env(ROWS[0], sandbox="local", at_least="namespaces")
