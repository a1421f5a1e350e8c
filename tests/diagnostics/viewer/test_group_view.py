"""Groups of trajectories, and what they are ordered by."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from verl_agentic.log.reader import RunLog, write_run
from verl_agentic.observe.viewer.group_view import Groups
from verl_agentic.observe.viewer.query import SORTS, Query
from verl_agentic.observe.viewer.run_view import RunView


def row(uid: str, session: int, **columns: Any) -> dict[str, Any]:
    start = {"split": "train", "step": 1, "place": "last", "role": "policy", "num_response_tokens": 10, "index": 0}
    return {**start, "uid": uid, "session": session, **columns}


def groups_of(folder: Path, rows: list[dict[str, Any]], updates: list[dict[str, Any]] | None = None) -> Groups:
    return Groups.of(RunLog(write_run(folder, trajectories=rows, updates=updates or [])).summaries)


def test_a_group_is_counted_by_what_the_policy_played_and_what_is_known(tmp_path: Path) -> None:
    rows = [
        row("a", 0, reward=1.0, acc=1.0, num_response_tokens=10),
        row("a", 1, reward=0.0, acc=0.0, num_response_tokens=30),
        row("a", 1, index=1, place="earlier", reward=0.0, num_response_tokens=900),
        row("a", 2, reward=9.0, is_void=True, stop_reason="infra_error"),
        row("a", 3, reward=9.0, role="greedy"),
        row("a", 4, reward=float("nan"), acc=0.5, num_response_tokens=20),
        row("b", 0, is_void=True),
    ]
    updates = [
        {"uid": "a", "session": 0, "index": 0, "mean_advantage": 0.5},
        {"uid": "a", "session": 1, "index": 0, "mean_advantage": -2.0},
    ]
    groups = groups_of(tmp_path, rows, updates)
    first, second = groups.lines([0, 1], Query().matches(groups.table, []))
    assert {name: first[name] for name in ("reward", "spread", "acc", "advantage", "length")} == {
        "reward": 0.5,  # of 1 and 0
        "spread": 0.5,
        "acc": 0.5,
        "advantage": 2.0,  # the largest size
        "length": 20.0,  # of 10, 30 and 20
    }
    assert (first["sessions"], first["rows"], first["voids"], first["stops"]["infra_error"]) == (5, 6, 1, 1)
    assert first["rewards"] == [1.0, 0.0, 9.0, 9.0, None]
    assert second["reward"] is None and second["spread"] is None


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", SORTS)
def test_groups_come_in_order_and_unknown_ones_last(view: RunView, sort: str, descending: bool) -> None:
    groups, rows = view.groups, view.groups.table.to_pylist()
    listed = groups.order(view.matches(Query()), sort=sort, descending=descending).tolist()
    assert sorted(listed) == list(range(len(groups)))
    values = [_value(sort, [rows[int(number)] for number in groups.rows(group)]) for group in listed]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == known and len(set(known)) > 2
    assert known == sorted(known, reverse=descending)


def _value(sort: str, members: list[dict[str, Any]]) -> float | None:
    if sort == "step":
        return members[0]["step"]
    column = {"advantage": "mean_advantage", "length": "num_response_tokens", "spread": "reward"}.get(sort, sort)
    values = [member[column] for member in members if member[column] is not None and not member["is_void"]]
    if not values:
        return None
    how = {"spread": pstdev, "advantage": lambda sizes: max(map(abs, sizes))}.get(sort, fmean)
    return round(how(values), 9)


def test_the_group_that_is_listed_begins_with_the_row_that_passed(view: RunView) -> None:
    query = Query(flags={"void": True})
    answer = view.list_groups(query, offset=0, limit=10)
    assert answer["total"] == 1 and answer["trajectories"] == 1
    assert answer["groups"][0]["first"] == [3, 0] and answer["groups"][0]["matching"] == 1


def test_one_uid_in_training_and_validation_is_two_groups(tmp_path: Path) -> None:
    groups = groups_of(tmp_path, [row("a", 0), row("a", 1, split="val")])
    assert len(groups) == 2 and [groups.rows(group).tolist() for group in (0, 1)] == [[0], [1]]
