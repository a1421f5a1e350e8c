"""Trajectories meet what training made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from verl_agentic import observe as diagnostics
from verl_agentic.base.errors import DataError
from verl_agentic.log.metric_log import MetricsLog, read_metrics
from verl_agentic.log.reader import RunLog, load, write_run
from verl_agentic.log.schema import SCHEMAS, TRAJECTORIES, json_schema


def trajectory(uid: str, session: int, *, step: int = 1, **columns: Any) -> dict[str, Any]:
    return {"uid": uid, "session": session, "step": step, "split": "train", **columns}


def test_a_trajectory_has_its_last_update_and_none_where_it_was_in_none(tmp_path: Path) -> None:
    rows = [trajectory("b", 0, step=2), trajectory("a", 1, reward=0.5), trajectory("a", 0), trajectory("v", 0, step=1)]
    rows[3]["split"] = "val"
    updates = [
        {"uid": "a", "session": 1, "index": 0, "trained_step": step, "advantages": [step, -step]} for step in (3, 1)
    ]
    write_run(tmp_path, trajectories=rows, updates=updates, rows_per_batch=3)
    frame = diagnostics.load(tmp_path, ["uid", "session", "trained_step", "advantages"])
    found = {(row["uid"], row["session"]): row for row in frame.to_dict("records")}
    assert found["a", 1]["trained_step"] == 3 and found["a", 1]["advantages"].tolist() == [3, -3]
    assert found["a", 0]["advantages"] is None and len(frame) == 4
    run = RunLog(tmp_path)
    keys = list(zip(run.summaries["uid"].to_pylist(), run.summaries["session"].to_pylist(), strict=True))
    assert keys == [("a", 0), ("a", 1), ("v", 0), ("b", 0)], "by step, then by name"
    assert run.record(1)["advantages"] == [3.0, -3.0] and run.record(1)["reward"] == 0.5
    assert run.record(0)["advantages"] is None and run.record(3)["uid"] == "b"


@pytest.mark.parametrize("lacking", ["agent", "env", "turn_ids"])
def test_a_column_that_an_older_release_did_not_write_is_empty(tmp_path: Path, lacking: str) -> None:
    row = trajectory("a", 0, agent="x", env="x", turn_ids=[1], reward=0.5, final_answer="42")
    write_run(tmp_path, trajectories=[row])
    (path,) = tmp_path.rglob("trajectories-*.arrows")
    table = pa.ipc.open_stream(path.read_bytes()).read_all().drop_columns(lacking)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    run = RunLog(tmp_path)
    record = run.record(0)
    assert record[lacking] in ("", []) and record["final_answer"] == "42"
    assert {name: record[name] for name in ("agent", "env", "turn_ids") if name != lacking} == {
        name: row[name] for name in ("agent", "env", "turn_ids") if name != lacking
    }
    assert run.summaries["reward"].to_pylist() == [0.5] and run.search("42") == [0]
    (loaded,) = diagnostics.load(tmp_path, ["reward", lacking]).to_dict("records")
    assert loaded["reward"] == 0.5 and len(loaded[lacking]) == 0


def test_a_record_fits_the_schema_that_the_docs_show(tmp_path: Path) -> None:
    call = {"name": "python", "arguments": "{}", "result": "1", "is_error": False, "elapsed_s": 0.5}
    turn = {"index": 0, "text": "a", "content": "a", "calls": [call], "observations": ["1"], "num_tokens": 1}
    whole = trajectory("a", 0, numbers={"acc": 1.0}, turns=[turn], prompt=[{"role": "user", "content": "?"}])
    write_run(tmp_path, trajectories=[whole], updates=[{"uid": "a", "session": 0, "advantages": [1.0]}])
    run = RunLog(tmp_path)
    for table in SCHEMAS:
        (record,) = run.table(table, SCHEMAS[table].names).to_pylist()
        record = json.loads(json.dumps(record))  # pairs become lists
        jsonschema.validate(record, json_schema(table))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**record, "uid": 3}, json_schema(table))


def test_the_schema_in_the_docs_is_the_code_s() -> None:
    for table in SCHEMAS:
        path = Path(__file__).parents[2] / "docs" / f"{table}.schema.json"
        assert json.loads(path.read_text(encoding="utf-8")) == json_schema(table), (
            "python -m verl_agentic.log.schema docs"
        )


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        load(tmp_path / "none")
    with pytest.raises(DataError, match=r"no trajectories are logged below .*log\.dir"):
        load(tmp_path)
    write_run(tmp_path, trajectories=[trajectory("a", 0)])
    with pytest.raises(DataError, match=r"the log has no such columns, got \['colour'\]"):
        load(tmp_path, ["uid", "colour"])
    newer = TRAJECTORIES.with_metadata({"table": "trajectories", "version": "3"})
    path = tmp_path / "trajectories" / "trajectories-x.arrows"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, newer):
        pass
    with pytest.raises(DataError, match="must be of version 2, got 3"):
        load(tmp_path)
    with pytest.raises(ValueError, match="no such columns"):
        write_run(tmp_path / "b", trajectories=[{"colour": 1}])


def test_metrics_come_back_step_by_step_and_what_was_logged_twice_is_put_together(tmp_path: Path) -> None:
    first, again = MetricsLog(tmp_path / "a"), MetricsLog(tmp_path / "a")
    first.append(1, {"x": 1, "text": "no number"})
    first.append(2, {"x": float("nan")})
    again.append(2, {"x": 5, "y": float("-inf")})
    (path,) = [p for p in (tmp_path / "a").iterdir() if '"step": 1,' in p.read_text()]
    path.write_text(path.read_text() + '{"step": 3, "metr')
    found = read_metrics(tmp_path)
    assert [(m["step"], m["x"]) for m in found] == [(1, 1.0), (2, 5.0)] and "text" not in found[0]
    again.append(1, {"val": 0.5})  # as a resumed run's validation does
    assert (read_metrics(tmp_path)[0]["x"], read_metrics(tmp_path)[0]["val"]) == (1.0, 0.5)
    (tmp_path / "metrics-other.jsonl").write_text('{"step": 9, "metrics": {"x": null, "y": 1}}\n{"step": 9}\n[]\n')
    assert read_metrics(tmp_path)[-1] == {"step": 9, "time": None, "y": 1.0}, "what has another form is left out"
    assert found[1]["y"] == float("-inf"), "what is not finite comes back, and the file is JSON all the same"


def test_verl_s_own_metrics_file_is_read_where_there_is_no_other(tmp_path: Path) -> None:
    lines = [{"step": 2, "data": {"actor/lr": 0.5}}, {"step": 1, "data": {"train/loss": 3.0}}]
    (tmp_path / "verl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(m["step"], m["actor/lr"]) for m in read_metrics(tmp_path)] == [(2, 0.5)], "SFT's are no steps of RL"
