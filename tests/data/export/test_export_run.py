"""Exports have the ids and masks of the log, and void or changed rows never leave it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_logs import PROMPT, log_row

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.data.export.export_run import Exported, ExportOptions, export_run
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.reader import write_run

Rows = list[dict[str, Any]]
ROW_SHAPES = ("sft", "outcomes", "rows", "cpt")


def export(folder: Path, log: Sequence[dict[str, Any]], shape: str, **options: Any) -> tuple[Exported, Rows]:
    """Returns the numbers and the records of an export."""
    out = folder / "out.parquet"
    told = export_run(
        write_run(folder / "run", trajectories=log, rows_per_batch=3), out, ExportOptions(shape=shape, **options)
    )
    return told, [record for _, record in numbered_records(out)]


def by_key(records: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {(record["uid"], record["session"], record["index"]): record for record in records}
    assert len(found) == len(records), "each row at most once"
    return found


IDS = st.lists(st.integers(0, 50), min_size=1, max_size=4)
TURNS = st.lists(st.tuples(IDS, st.one_of(st.just([]), IDS)), min_size=1, max_size=4)
ROWS = st.lists(
    st.tuples(TURNS, st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from("gh"), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@given(rows=ROWS, shape=st.sampled_from(ROW_SHAPES))
def test_ids_and_masks_are_those_of_the_log_and_void_rows_never_leave(
    rows: Sequence[Any], shape: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = []
    for session, (turns, is_void, acc, uid, num_side_rows) in enumerate(rows):
        columns = {"uid": uid, "is_void": is_void, "acc": acc}
        log += [log_row(session, turns, index=index, place="side", **columns) for index in range(num_side_rows)]
        log.append(log_row(session, turns, index=num_side_rows, **columns))
    kept = by_key([row for row in log if not row["is_void"]])
    folder = tmp_path_factory.mktemp("export")
    if not kept:
        with pytest.raises(DataError, match="record"):
            export(folder, log, shape)
        return
    told, records = export(folder, log, shape)
    assert told.records == told.rows == len(kept) and set(by_key(records)) == set(kept)
    assert told.left_out.get("void", 0) == len(log) - len(kept)
    for key, record in by_key(records).items():
        logged = kept[key]
        if shape in ("sft", "cpt"):
            assert record["input_ids"] == logged["prompt_ids"] + logged["response_ids"]
            masked = [0] * len(PROMPT) + logged["response_mask"]
            assert record["loss_mask"] == (masked if shape == "sft" else [1] * len(masked))
        else:
            same = ("prompt_ids", "response_ids", "response_mask", "turn_ids")
            assert [record[name] for name in same] == [logged[name] for name in same]
        if shape == "outcomes":
            assert record["outcome"] == logged["acc"]
        if shape == "rows":
            assert record["rollout_log_probs"] == logged["rollout_log_probs"]


def test_jsonl_parquet_and_datasets_have_the_same_records(tmp_path: Path) -> None:
    log = [
        log_row(0, [([4, 5], [6]), ([7], [])], numbers={"reward/format": 0.25, "guided": 1.0}),
        log_row(1, [([8], [])]),
    ]
    run = write_run(tmp_path / "run", trajectories=log)
    for shape in ROW_SHAPES:
        found = []
        for name, kind in (("a.parquet", "parquet"), ("a.jsonl", "json")):
            export_run(run, tmp_path / name, ExportOptions(shape=shape))
            records = [record for _, record in numbered_records(tmp_path / name)]
            cache = str(tmp_path / "cache")
            loaded = datasets.load_dataset(kind, data_files=str(tmp_path / name), split="train", cache_dir=cache)
            assert loaded.to_list() == records
            found.append(records)
        assert found[0] == found[1] and [record["guided"] for record in found[0]] == [True, False]
    assert [record["reward/format"] for record in export(tmp_path / "p", log, "rows")[1]] == [0.25, None]
    with pytest.raises(ConfigError, match=r"a\.csv"):
        export_run(run, tmp_path / "a.csv", ExportOptions(shape="rows"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"response_mask": [1, 1, 1, 1], "num_model_tokens": 4},
            r"tokens 2 to 3 of the response \(tool, turn 0\) have mask 1",
        ),
        ({"response_mask": [1, 0, 0, 1]}, "another number of tokens with mask 1"),
        ({"response_mask": [2, 1, 0, 0]}, "other values than 0 and 1"),
        ({"response_mask": [1, 1, 0]}, "response_mask has 3"),
        ({"response_ids": [4, 5, 6]}, "response_mask has 4"),
        ({"turn_ids": [0, 0, 1, 1]}, "turns that differ"),
        ({"segments": []}, "do not end at token 4"),
        ({"token_rewards": [0.0]}, "token_rewards has 1"),
    ],
)
@pytest.mark.parametrize("shape", ["sft", "pairs", "steps"])
def test_a_changed_row_is_refused_by_name_and_no_file_is_left(
    tmp_path: Path, change: dict[str, Any], says: str, shape: str
) -> None:
    good = log_row(0, [([4, 5], [6]), ([7], [])], acc=0.0)
    with pytest.raises(DataError, match=rf"row g/1/0 cannot be trained on, got .*{says}"):
        export(tmp_path, [good, {**good, "session": 1, "acc": 1.0, **change}], shape)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_rows_with_a_secret_or_a_breach_or_without_a_trained_token_stay(tmp_path: Path) -> None:
    good = log_row(0, [([4, 5], [6]), ([7], [])])
    log = [
        good,
        {**good, "session": 1, "response_ids": [4, -1, 6, 7]},
        {**good, "session": 2, "prompt_ids": [-1]},
        {**good, "session": 3, "breach": "turn 0: the text differs"},
        {**good, "session": 4, "response_mask": [0] * 4, "num_model_tokens": 0},
    ]
    told, (record,) = export(tmp_path, log, "sft")
    assert record["session"] == 0
    assert json.loads(json.dumps(asdict(told)))["left_out"] == {  # as a course keeps it
        "different from what the policy did (audit)": 1,
        "with a secret": 2,
        "without a trained token": 1,
    }


def test_an_outcome_that_is_unknown_is_no_label(tmp_path: Path) -> None:
    told, records = export(tmp_path, [log_row(0, [([4], [])], acc=None), log_row(1, [([5], [])], acc=0.0)], "outcomes")
    assert [record["outcome"] for record in records] == [0.0] and told.left_out == {"without acc": 1}


def test_a_number_that_is_not_finite_is_unknown(tmp_path: Path) -> None:
    nan = float("nan")
    log = [log_row(n, [([4 + n], [])], acc=acc) for n, acc in enumerate((nan, 1.0, 0.0))]
    assert sessions_of(export(tmp_path / "best", log, "sft", best=1)[1]) == [1]
    assert sessions_of(export(tmp_path / "outcomes", log, "outcomes")[1]) == [1, 2]
    assert sessions_of(export(tmp_path / "where", log, "sft", where="not acc >= 1")[1]) == [2]
    told, (pair,) = export(tmp_path / "pairs", log, "pairs")
    assert (pair["chosen_ids"], pair["rejected_ids"]) == ([5], [6]) and told.left_out == {"without acc": 1}


def test_the_score_of_an_episode_holds_for_all_its_rows(tmp_path: Path) -> None:
    log = [
        log_row(session, [([4 + index], [])], index=index, place=place, score=score)
        for session, value in enumerate((1.0, 0.0))
        for index, place, score in ((0, "earlier", None), (1, "last", {"score": value}))
    ]
    _, records = export(tmp_path, log, "sft", where='score["score"] > 0')
    assert [(r["session"], r["index"]) for r in records] == [(0, 0), (0, 1)]


def test_episodes_with_lost_or_repeated_rows_stay(tmp_path: Path) -> None:
    first, last = (log_row(0, [([4 + n], [])], index=n, place=place) for n, place in enumerate(("earlier", "last")))
    alone = log_row(9, [([9], [])], acc=0.0)
    lost = {"of episodes with lost or repeated rows": 1}
    for number, rows in enumerate([[first], [last], [first, last, last]]):
        told, records = export(tmp_path / str(number), [*rows, alone], "sft")
        assert sessions_of(records) == [9] and told.left_out == {**lost, next(iter(lost)): len(rows)}
    with pytest.raises(DataError, match="record"):  # the first row alone would be a winner
        export(tmp_path / "pairs", [first, alone], "pairs")


def sessions_of(records: Rows) -> list[int]:
    return [record["session"] for record in records]


def test_the_split_is_training_if_there_is_any(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = [log_row(0, [([4], [])]), log_row(1, [([5], [])], uid="v", split="val")]
    told, records = export(tmp_path / "a", log, "sft")
    assert sessions_of(records) == [0] and told.left_out == {"of split val": 1}
    assert sessions_of(export(tmp_path / "b", log, "sft", split="val")[1]) == [1]
    assert not caplog.text
    assert sessions_of(export(tmp_path / "c", log[1:], "sft")[1]) == [1]
    assert "validation rows are exported" in caplog.text


def test_best_takes_the_highest_of_each_group_and_the_first_of_equals(tmp_path: Path) -> None:
    values = {"g": (0.0, 1.0, 1.0, 0.5), "h": (0.25, 0.0)}
    log = [
        log_row(number, [([number + 4], [])], uid=uid, acc=acc, numbers={"reward/format": 1.0 - acc})
        for uid, accs in values.items()
        for number, acc in enumerate(accs)
    ]
    told, records = export(tmp_path / "a", log, "sft", best=2)
    assert [(r["uid"], r["session"]) for r in records] == [("g", 1), ("g", 2), ("h", 0), ("h", 1)]
    assert told.left_out == {"beyond --best": 2}
    _, records = export(tmp_path / "b", log, "sft", best=1, by="reward/format")
    assert [(r["uid"], r["session"]) for r in records] == [("g", 0), ("h", 1)]
    with pytest.raises(DataError, match="reward/none"):
        export(tmp_path / "c", log, "sft", best=1, by="reward/none")
    with pytest.raises(ConfigError, match="best"):
        export(tmp_path / "d", log, "sft", best=0)


def test_per_prompt_tells_tasks_of_several_files_apart_that_are_numbered_alike(tmp_path: Path) -> None:
    log = [
        log_row(n, [([n + 4], [])], uid=f"{text}", task_id="0", prompt=[{"role": "user", "content": text}])
        for n, text in enumerate("aab")
    ]
    assert sessions_of(export(tmp_path, log, "sft", per_prompt=1)[1]) == [0, 2]


def test_logs_of_different_tokenizers_are_not_mixed(tmp_path: Path) -> None:
    for name, vocabulary in (("a", {"x": 0}), ("b", {"x": 0}), ("c", {"y": 0})):
        run = write_run(tmp_path / "runs" / name, trajectories=[log_row(0, [([4], [])], uid=name)])
        (run / "tokenizer").mkdir()
        written = {"model": {"vocab": vocabulary}, "added_tokens": [], "padding": name}
        (run / "tokenizer" / "tokenizer.json").write_text(json.dumps(written))
        if name == "b":
            assert export_run(tmp_path / "runs", tmp_path / "out.jsonl", ExportOptions(shape="sft")).records == 2
    with pytest.raises(ConfigError, match="tokenizer"):
        export_run(tmp_path / "runs", tmp_path / "out.jsonl", ExportOptions(shape="sft"))


def test_per_prompt_counts_a_task_over_all_steps_and_where_comes_first(tmp_path: Path) -> None:
    log = [
        log_row(session, [([session + 4], [])], uid=f"{task}{step}", step=step, task_id=task, acc=float(session != 1))
        for step in (1, 2)
        for task in ("a", "b", "")
        for session in (0, 1, 2)
    ]
    told, records = export(tmp_path, log, "sft", where="acc >= 1", per_prompt=3)
    found = [(r["task_id"], r["step"], r["session"]) for r in records]
    assert [place for place in found if place[0] == "a"] == [("a", 1, 0), ("a", 1, 2), ("a", 2, 0)]
    assert len([place for place in found if not place[0]]) == 4, "without a name, each group is a prompt"
    assert told.left_out == {"that fail --where": 6, "beyond --per-prompt": 2}
