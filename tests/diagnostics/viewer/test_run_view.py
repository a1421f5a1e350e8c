"""Queries that the page sends about a run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from stored_runs import stored_run

from verl_agentic.base.errors import DataError
from verl_agentic.log.metric_log import MetricsLog
from verl_agentic.log.reader import RunLog, write_run
from verl_agentic.observe.viewer.query import Query
from verl_agentic.observe.viewer.run_view import RunView


def test_pages_of_the_list_put_together_are_the_list(view: RunView) -> None:
    whole = view.list_groups(Query(), offset=0, limit=500)
    assert whole["total"] == 21 == len(whole["groups"]) and whole["trajectories"] == 81
    pages = [view.list_groups(Query(), offset=offset, limit=8)["groups"] for offset in (0, 8, 16, 24)]
    assert [line for page in pages for line in page] == whole["groups"] and not pages[3]


def test_the_place_of_a_group_is_its_number_in_the_list_that_was_asked_for(view: RunView) -> None:
    query = Query(sort="length", descending=False)
    lines = view.list_groups(query, offset=0, limit=500)["groups"]
    ninth = lines[9]
    around = (ninth["split"], ninth["step"], ninth["uid"])
    assert view.list_groups(query, offset=0, limit=1, around=around)["place"] == 9
    assert view.list_groups(Query(choices={"split": ("val",)}), offset=0, limit=1, around=around)["place"] is None
    assert view.list_groups(query, offset=0, limit=1, around=("train", 1, "nobody"))["place"] is None


def test_what_a_run_writes_is_taken_up_by_a_refresh(tmp_path: Path, tiny_model: Path) -> None:
    stored_run(tmp_path, tiny_model, steps=2, groups=2, sessions=2)
    view = RunView(tmp_path)
    before = view.about()
    assert not view.has_news()
    extra = {"uid": "new", "session": 0, "index": 0, "split": "train", "step": 9, "place": "last", "role": "policy"}
    write_run(tmp_path / "resumed", trajectories=[extra])
    MetricsLog(tmp_path).append(9, {"new/metric": 1.0})
    assert view.has_news() and view.about()["trajectories"] == before["trajectories"]
    view.refresh()
    now = view.about()
    assert (now["trajectories"], now["revision"]) == (before["trajectories"] + 1, before["revision"] + 1)
    assert "new/metric" in now["metrics"] and not view.has_news()
    assert view.list_groups(Query(), offset=0, limit=1)["groups"][0]["uid"] == "new"


def test_the_result_is_the_mean_outcome_of_training_per_step_and_without_outcomes_the_reward(tmp_path: Path) -> None:
    common = {"index": 0, "place": "last", "role": "policy"}
    rows = [
        {**common, "split": split, "step": step, "uid": f"{split}{step}", "session": session, "acc": acc, "reward": 0.5}
        for split, step, session, acc in (("train", 2, 0, 1.0), ("train", 1, 0, 0.0), ("train", 1, 1, 1.0),
                                          ("train", 1, 2, None), ("val", 1, 0, 0.0))
    ]  # fmt: skip
    write_run(tmp_path / "outcomes", trajectories=rows)
    result = RunView(tmp_path / "outcomes").about()["result"]
    assert result == {"name": "outcome", "points": [[1, 0.5], [2, 1.0]]}
    write_run(tmp_path / "rewards", trajectories=[{**row, "acc": None} for row in rows])
    assert RunView(tmp_path / "rewards").about()["result"] == {"name": "reward", "points": [[1, 0.5], [2, 0.5]]}


def test_a_run_that_has_played_nothing_yet_is_shown_and_its_first_trajectory_too(tmp_path: Path) -> None:
    MetricsLog(tmp_path).append(1, {"batch/entropy": 0.5})
    view = RunView(tmp_path)
    assert view.about()["trajectories"] == 0 and view.about()["result"]["points"] == []
    assert view.about()["metrics"] == ["batch/entropy"]
    assert view.list_groups(Query(text="x"), offset=0, limit=9)["groups"] == []
    extra = {"uid": "new", "session": 0, "index": 0, "split": "train", "step": 1, "place": "last", "role": "policy"}
    write_run(tmp_path, trajectories=[extra])
    view.refresh()
    assert view.about()["trajectories"] == 1


def test_others_are_answered_while_a_text_is_looked_for(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = RunView(stored_run(tmp_path, tiny_model, steps=2, groups=2, sessions=2))
    begun, may_end, search = threading.Event(), threading.Event(), RunLog.search

    def slow(log: RunLog, text: str) -> list[int]:
        begun.set()
        assert may_end.wait(20)
        return search(log, text)

    monkeypatch.setattr(RunLog, "search", slow)
    found: list[int] = []
    looking = threading.Thread(
        target=lambda: found.append(view.list_groups(Query(text="Kyoto"), offset=0, limit=9)["total"])
    )
    looking.start()
    assert begun.wait(20)
    assert view.list_groups(Query(), offset=0, limit=9)["total"] == 5
    new = {"uid": "a-first", "session": 0, "index": 0, "split": "train", "step": 0, "place": "last", "role": "policy"}
    write_run(tmp_path / "resumed", trajectories=[new])  # moves every line of the summaries
    view.refresh()
    may_end.set()
    looking.join()
    assert found == [3] and view.list_groups(Query(text="Kyoto"), offset=0, limit=9)["groups"][0]["uid"] != "a-first"


def test_findings_are_listed_without_the_line_that_is_cut_off(view: RunView) -> None:
    assert [finding["name"] for finding in view.about()["findings"]] == ["entropy_collapse", "void_rows"]


def test_metrics_come_by_name_with_null_where_a_step_has_none(tmp_path: Path) -> None:
    write_run(tmp_path, metrics=[(1, {"a": 1.0}), (3, {"a": 2.0, "b": 5.0})])
    assert RunView(tmp_path).metrics(["b", "a", "nothing"]) == {
        "steps": [1, 3],
        "values": {"b": [None, 5.0], "a": [1.0, 2.0], "nothing": [None, None]},
    }


def test_what_is_not_there_is_said(view: RunView, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nobody"):
        view.group("train", 1, "nobody")
    with pytest.raises(DataError, match="'session': 99"):
        view.trajectory(("train", 5, "g0005-03", 99, 0))
    with pytest.raises(DataError, match="no such folder"):
        RunView(tmp_path / "missing")
