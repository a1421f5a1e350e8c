"""Filters of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.observe.viewer.query import Query
from verl_agentic.observe.viewer.run_view import RunView

_CASES: dict[str, tuple[dict[str, list[str]], Callable[[dict[str, Any]], bool]]] = {
    "split": ({"split": ["val"]}, lambda row: row["split"] == "val"),
    "steps": ({"step_min": ["2"], "step_max": ["3"]}, lambda row: 2 <= row["step"] <= 3),
    "stops": (
        {"stop": ["answered", "env_done"]},
        lambda row: row["stop_reason"] in ("answered", "env_done"),
    ),
    "tool": ({"tool": ["python"]}, lambda row: "python" in row["tools"]),
    "hacking": ({"hacking": ["network", "test_edits"]}, lambda row: "network" in row["hacking"]),
    "env": ({"env": ["python_math"]}, lambda row: row["env"] == "python_math"),
    "reward": ({"reward_min": ["1"]}, lambda row: row["reward"] is not None and row["reward"] >= 1),
    "acc": ({"acc_max": ["0"]}, lambda row: row["acc"] is not None and row["acc"] <= 0),
    "advantage": (
        {"advantage_max": ["-0.4"]},
        lambda row: row["mean_advantage"] is not None and row["mean_advantage"] <= -0.4,
    ),
    "length": ({"length_min": ["150"], "length_max": ["1.9e2"]}, lambda row: 150 <= row["num_response_tokens"] <= 190),
    "void": ({"void": ["yes"]}, lambda row: row["is_void"]),
    "not void": ({"void": ["no"]}, lambda row: not row["is_void"]),
    "breach": ({"breach": ["yes"]}, lambda row: row["breach"] != ""),
    "task": ({"task": ["KYOTO"]}, lambda row: "kyoto" in row["task_id"].lower()),
    "two": ({"step_min": ["4"], "acc_min": ["1"]}, lambda row: row["step"] >= 4 and (row["acc"] or 0) >= 1),
    "all": ({}, lambda row: True),
}


@pytest.mark.parametrize("case", _CASES)
def test_what_passes_a_filter_is_what_a_loop_over_all_rows_finds(view: RunView, case: str) -> None:
    params, passes = _CASES[case]
    rows = view.groups.table.to_pylist()
    expected = [passes(row) for row in rows]
    assert any(expected) and (case == "all" or not all(expected))
    assert view.matches(Query.from_params(params)).to_pylist() == expected


def test_a_text_is_looked_for_in_what_was_said(view: RunView) -> None:
    found = view.matches(Query.from_params({"text": ["the answer is 3367"]})).to_pylist()
    right = [row["acc"] == 1.0 for row in view.groups.table.to_pylist()]
    hostile = [row["env"] != "python_math" for row in view.groups.table.to_pylist()]
    assert sum(right) > 10
    void = view.groups.table["is_void"].to_pylist()
    assert all(f == r for f, r, h, v in zip(found, right, hostile, void, strict=True) if not h and not v)


def test_a_task_and_a_text_are_looked_for_together(view: RunView) -> None:
    task, text = {"task": ["kyoto"]}, {"text": ["the answer is 3367"]}
    of_task, of_text, of_both = (view.matches(Query.from_params(p)).to_pylist() for p in (task, text, task | text))
    assert of_both == [a and b for a, b in zip(of_task, of_text, strict=True)]
    assert 0 < sum(of_both) < sum(of_task)


@pytest.mark.parametrize(
    "params",
    [{"reward_min": ["high"]}, {"step_max": ["nan"]}, {"void": ["1"]}, {"sort": ["color"]}, {"order": ["up"]}],
)
def test_what_is_no_filter_is_refused_with_its_value(params: dict[str, list[str]]) -> None:
    with pytest.raises(DataError, match=next(iter(params.values()))[0]):
        Query.from_params(params)


def test_empty_fields_of_a_form_filter_nothing(view: RunView) -> None:
    query = Query.from_params({"reward_min": [""], "stop": [""], "text": [" "], "void": [""]})
    assert all(view.matches(query).to_pylist())
