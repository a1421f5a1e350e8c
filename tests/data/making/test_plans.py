"""`data make plans`: a planner's subgoals are checked and stored in the rows, where `llm_subgoals` rewards them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from maker_runs import model, rows, run
from samples import call, graded, sample, turn

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.prepare import make_rows, to_records
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.components.llm_subgoals import llm_subgoals
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.files.rows import read_rows

RUN = {"name": "run code", "check": {"tool": "python", "arguments": {"code": "print(2)"}}}
PLAN: dict[str, Any] = {
    "subgoals": [
        RUN,
        {"name": "box it", "check": {"text": "boxed"}},
        {"name": "feel done", "check": None},
        {"name": "fly", "check": {"tool": "fly", "arguments": {}}},
        {"name": "run fast", "check": {"tool": "python", "arguments": {"speed": 9}}},
        {"name": "score", "check": {"info": "score", "at_least": 1}},
    ]
}


def write_tasks(folder: Path, count: int = 2) -> Path:
    """Writes training rows of `python_math`, whose hidden fields are JSON text."""
    package = load_env_package("python_math")
    tasks = make_rows(package, split="train", count=count, seed=0)
    write_json_lines(to_records(tasks, split="train", agent_name="env_agent"), folder / "train.jsonl")
    return folder / "train.jsonl"


async def make(folder: Path, reply: str, **options: Any) -> tuple[Any, list[str]]:
    requests: list[str] = []
    chat = model(lambda text: requests.append(text) or reply)
    report = await run(
        "plans", folder / "p.jsonl", n=9, chat=chat, rows=str(folder / "train.jsonl"), env="python_math", **options
    )
    return report, requests


async def test_a_plan_is_stored_in_the_row_and_what_cannot_be_verified_gives_nothing(tmp_path: Path) -> None:
    tasks = read_rows(write_tasks(tmp_path))
    report, requests = await make(tmp_path, f"Here:\n```json\n{json.dumps(PLAN)}\n```")
    planned = read_rows(tmp_path / "p.jsonl")
    assert (report.rows, report.dropped) == (2, {})
    for task, row, request in zip(tasks, planned, requests, strict=True):
        assert (row.prompt, row.ground_truth) == (task.prompt, task.ground_truth)
        assert {key: value for key, value in row.extra.items() if key != "plan"} == task.extra
        assert task.prompt[-1].content in request and '"python"' in request
    extra = planned[0].extra
    everything = [turn("boxed feel done fly", call("python", code="print(2)")), turn("run fast")]
    verdict = graded(llm_subgoals, sample(everything, extra=extra, outcome=1.0, info={"score": 5}), total=0.6)
    assert verdict.value == pytest.approx(0.2), "two of six"
    assert verdict.info == {"unverifiable": 4.0}


async def test_the_planner_does_not_see_the_ground_truth(tmp_path: Path) -> None:
    write_tasks(tmp_path, 1)
    (record,) = rows(tmp_path / "train.jsonl")
    record["reward_model"]["ground_truth"] = "987654321"
    write_json_lines([record], tmp_path / "train.jsonl")
    _, requests = await make(tmp_path, json.dumps(PLAN))
    assert len(requests) == 1 and "987654321" not in requests[0]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("1. run code", "the plan has another form"),
        ({"subgoals": [RUN, RUN]}, "the plan has another form"),
        ({"subgoals": [{"name": "run code"}]}, "the plan has another form"),
        ({"subgoals": [{"name": f"step {n}", "check": None} for n in range(4)]}, "the plan has another form"),
        ({"subgoals": [{"name": "feel done", "check": None}]}, "no subgoal can be verified"),
        ({"subgoals": [{"name": "fly", "check": {"tool": "fly"}}]}, "no subgoal can be verified"),
    ],
)
async def test_a_plan_of_another_form_is_refused(tmp_path: Path, plan: Any, reason: str) -> None:
    write_tasks(tmp_path, 1)
    report, _ = await make(tmp_path, plan if isinstance(plan, str) else json.dumps(plan), max_subgoals=3)
    assert (report.rows, report.dropped) == (0, {reason: 1})


async def test_a_row_with_a_plan_keeps_it(tmp_path: Path) -> None:
    write_tasks(tmp_path, 1)
    await make(tmp_path, json.dumps(PLAN))
    (tmp_path / "p.jsonl").replace(tmp_path / "train.jsonl")
    for path in tmp_path.glob("p.*"):
        path.unlink()
    before = rows(tmp_path / "train.jsonl")
    report, requests = await make(tmp_path, "another plan")
    assert (report.rows, requests, rows(tmp_path / "p.jsonl")) == (1, [], before)


async def test_a_plan_makes_no_other_task_of_a_held_out_row(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path)
    write_json_lines(rows(tasks)[:1], tmp_path / "val.jsonl")
    options: dict[str, Any] = {"rows": str(tasks), "env": "python_math"}
    chat = model(lambda text: json.dumps(PLAN))
    report = await run("plans", tmp_path / "p.jsonl", n=9, chat=chat, against=[tmp_path / "val.jsonl"], **options)
    assert report.dropped == {"repeats another row (exact)": 1}


async def test_rows_and_their_environment_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows"):
        await run("plans", tmp_path / "p.jsonl", n=1, chat=model(str))
    options: dict[str, Any] = {"rows": str(write_tasks(tmp_path, 1))}
    with pytest.raises(ConfigError, match="env=NAME"):
        await run("plans", tmp_path / "p.jsonl", n=1, chat=model(str), **options)
