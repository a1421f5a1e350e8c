"""`verl-agentic prepare`: files for verl, and the check of files that are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from samples import logged

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.cli import main
from verl_agentic.data.prepare import read_records, write_parquet
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import run_episodes, scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.log.files.rows import row_of_columns
from verl_agentic.log.reader import write_run


def test_both_splits_are_written_with_the_command_line_that_uses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows"
    assert main(["prepare", "python_math", "--out", str(out), "--train", "5", "--test", "2", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    files = f"data.train_files={out / 'train.parquet'} data.val_files={out / 'test.parquet'}"
    assert f"{files} agentic.env=python_math\n" in shown
    train, test = (read_records(out / f"{split}.parquet") for split in ("train", "test"))
    assert (len(train), len(test)) == (5, 2)
    make_rows = load_env_package("python_math").make_rows
    assert make_rows is not None
    for split, records in (("train", train), ("test", test)):
        rows = make_rows(split=split, count=len(records), seed=3)
        for row, record in zip(rows, records, strict=True):
            read = row_of_columns(record, "row")
            assert (read.prompt, read.ground_truth) == (row.prompt, row.ground_truth)
            info = record["extra_info"]
            assert (info["split"], info["env"], record["agent_name"]) == (split, "", "env_agent")


@pytest.mark.parametrize("truth", ["", "see the proof", "42"])
def test_a_ground_truth_that_no_answer_can_meet_is_refused_with_the_component_that_scores_it(
    truth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", "python_math", "--out", str(tmp_path), "--train", "2", "--test", "0"]) == 0
    path = tmp_path / "train.parquet"
    records = read_records(path)
    records[1]["reward_model"]["ground_truth"] = truth
    write_parquet(records, path)
    check = ["prepare", "python_math", "--check", str(path), "--reward", "math"]
    assert main(check) == (0 if truth == "42" else 2)
    assert ("row 1" in capsys.readouterr().err) == (truth != "42")


def test_a_split_of_no_rows_is_left_out_and_tools_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", "python_math", "--out", str(tmp_path), "--train", "2", "--test", "0"]
    assert main([*arguments, "--tools", "python", "--agent-name", "mine"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]
    record = read_records(tmp_path / "train.parquet")[0]
    assert (record["extra_info"]["tool_selection"], record["agent_name"]) == (["python"], "mine")
    assert "val_files" not in capsys.readouterr().out


def test_tools_that_do_not_exist_options_that_are_unknown_and_too_many_rows_are_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", "python_math", "--out", str(tmp_path / "x"), "--train", "2"]
    for more, message in (
        (["--tools", "python,nope"], "2 x extra_info.tool_selection: the environment has no tool 'nope'"),
        (["--option", "level=3"], "unknown options of the rows of 'python_math', got ['level']"),
        (["--option", "level"], "--option takes KEY=VALUE, each key once, got 'level'"),
        (["--test", "10000000"], "making 10000000 test rows"),
        (["--config", "timeout=3"], "got an unexpected keyword argument 'timeout'"),
        (["--train", "0", "--test", "0"], "no rows to write"),
        (["--per-task", "3"], "--per-task needs --solved RUN_DIR, got none"),
        (["--rewriter", "model=m"], "--rewriter needs --rewrite RUN_DIR, got none"),
        (["--model", "folder"], "--model needs --hindsight, --solved or --rewrite, got 'folder' alone"),
        (["--agent-name", ""], "2 x agent_name: must be a text, got ''; first in train: row 0"),
    ):
        assert main([*arguments, *more]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("env", "override", "name"),
    [
        ("./kiosk", "{here}/kiosk", "./kiosk"),
        ("{here}/kiosk", "{here}/kiosk", "./kiosk"),
        ("kiosk/__init__.py:make_env", "{here}/kiosk/__init__.py:make_env", "./kiosk/__init__.py:make_env"),
        ("python_math", "python_math", "python_math"),
    ],
)
def test_rows_name_their_environment_only_when_asked_and_never_by_an_absolute_path(
    env: str,
    override: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["env", "new", "kiosk", "--dir", str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows" / "train.parquet"
    arguments = ["prepare", env.format(here=tmp_path), "--out", "rows", "--train", "2", "--test", "0"]
    for options, chosen, named in (([], override.format(here=tmp_path), ""), (["--name-env"], "null", name)):
        capsys.readouterr()
        assert main([*arguments, *options]) == 0
        assert capsys.readouterr().out.endswith(f"data.train_files={path} agentic.env={chosen}\n")
        assert {record["extra_info"]["env"] for record in read_records(path)} == {named}
    assert str(tmp_path).encode() not in path.read_bytes()


def test_files_are_checked_by_name_row_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["prepare", "python_math", "--out", str(tmp_path), "--train", "3", "--test", "1"])
    good, bad = tmp_path / "train.parquet", tmp_path / "bad.parquet"
    records = read_records(good)
    for record in records:
        record["extra_info"]["tools_kwargs"] = {"python": {"a": 1}, "calc": None}
    write_parquet(records, bad)
    capsys.readouterr()
    assert main(["prepare", "python_math", "--check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: 3 rows, fine\n"
    assert main(["prepare", "python_math", "--check", str(good), str(bad)]) == 2
    error = capsys.readouterr().err
    assert "3 x extra_info.tools_kwargs.calc" in error and f"first in {bad}: row 0" in error


def test_rows_that_an_evaluation_always_or_never_solved_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", "python_math", "--train", "4", "--test", "2"]
    assert main([*arguments, "--out", str(tmp_path / "all")]) == 0
    tasks = [record["extra_info"]["task_id"] for record in read_records(tmp_path / "all" / "train.parquet")]
    outcomes = {tasks[0]: (1.0, 1.0), tasks[1]: (0.0, 0.0), tasks[2]: (1.0, 0.0)}  # the fourth was not played
    lines = [
        {"uid": task, "session": n, "task_id": task, "acc": outcome}
        for task, both in outcomes.items()
        for n, outcome in enumerate(both)
    ]
    played = write_run(tmp_path / "eval", trajectories=lines)
    assert main([*arguments, "--out", str(tmp_path / "kept"), "--learnable", str(played)]) == 0
    kept = [record["extra_info"]["task_id"] for record in read_records(tmp_path / "kept" / "train.parquet")]
    assert kept == tasks[2:] and len(read_records(tmp_path / "kept" / "test.parquet")) == 2
    assert "2 of 4" in capsys.readouterr().out
    write_run(played, trajectories=lines[:1])
    assert main([*arguments, "--out", str(tmp_path / "none"), "--learnable", str(played)]) == 2
    assert "none of the 4" in capsys.readouterr().err


QUEST = {
    **{"game": "quest", "start": "hall", "goal": ["coin", "you"], "rooms": ["hall", "attic"]},
    **{"exits": [["hall", "north", "attic", None]], "furniture": {}, "locks": {}},
    "things": {"apple": "hall", "coin": "attic"},
}


def played_quests(folder: Path, chat: tuple[Any, Any], *episodes: Sequence[str]) -> None:
    """Plays a quest with these actions, and stores the episodes as a training does."""
    tokenizer, codec = chat
    limits = EpisodeLimits(max_response_tokens=2_000, max_context_tokens=4_000, max_turns=2)
    row = EnvRow(prompt=(Message("user", "get the coin"),), ground_truth=QUEST, extra={"style": "compact"})

    def script(actions: Sequence[str]) -> Any:
        def say(messages: Sequence[Message]) -> Message:
            action = actions[sum(message.role == "assistant" for message in messages)]
            return Message("assistant", "", tool_calls=(ToolCall("act", {"action": action}),))

        return say

    played = asyncio.run(
        run_episodes(
            [row] * len(episodes),
            make_env=load_env_package("text_game").make_env,
            setup_for=lambda n, row: scripted(script(episodes[n]), codec=codec, tokenizer=tokenizer, limits=limits),
        )
    )
    stored = [
        StoredSample(group="g", session=n, step=1, split="train", sample=to_sample(episode, row, id=f"quest/{n}"))
        for n, episode in enumerate(played)
    ]
    write_run(folder, trajectories=logged(*stored))


def test_a_run_s_episodes_become_rows_for_sft_failures_under_the_task_that_they_did(
    tmp_path: Path, tiny_chat: tuple[Any, Any], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    played_quests(run, tiny_chat, ["go north", "take coin"], ["look", "take apple"], ["look", "go north"])
    arguments = ["prepare", "text_game", "--hindsight", str(run), "--out", str(tmp_path), "--model", str(tiny_model)]
    assert main(arguments) == 0
    path = tmp_path / "hindsight.jsonl"
    assert capsys.readouterr().out == (
        f"{path}: 2 rows of 3 episodes: 1 solved, 1 relabelled, 1 left out\ndata.train_files={path}\n"
    )
    assert not (tmp_path / "train.parquet").exists()
    texts = [tiny_chat[0].decode(row["input_ids"]) for _, row in read_json_lines(path)]
    assert "get the coin" in texts[0] and "take coin" in texts[0]
    assert "quest: get the apple" in texts[1] and "take apple" in texts[1] and "coin" not in texts[1]


def test_solved_episodes_become_rows_for_sft_and_failures_do_not(
    tmp_path: Path, tiny_chat: tuple[Any, Any], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    win = ["go north", "take coin"]
    played_quests(run, tiny_chat, win, ["look", "take apple"], win, win)
    arguments = ["prepare", "text_game", "--out", str(tmp_path), "--model", str(tiny_model)]
    assert main([*arguments, "--solved", str(run), "--per-task", "2"]) == 0
    assert "2 rows of 2 episodes: 2 solved, 0 relabelled, 0 left out" in capsys.readouterr().out
    texts = [tiny_chat[0].decode(row["input_ids"]) for _, row in read_json_lines(tmp_path / "solved.jsonl")]
    assert len(texts) == 2 and all("take coin" in text and "apple" not in text for text in texts)
    assert main([*arguments, "--solved", str(run), "--hindsight", str(run)]) == 2
    assert "cannot be combined" in capsys.readouterr().err
    lost = tmp_path / "lost"
    played_quests(lost, tiny_chat, ["look", "look"])
    assert main([*arguments, "--solved", str(lost)]) == 2
    assert "got 1" in capsys.readouterr().err


def test_hindsight_says_what_it_lacks_and_leaves_what_was_there(
    tmp_path: Path, tiny_chat: tuple[Any, Any], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    played_quests(run, tiny_chat, ["go north", "take coin"])
    model = ["--model", str(tiny_model)]
    earlier = tmp_path / "x" / "hindsight.jsonl"
    earlier.parent.mkdir()
    earlier.write_text("earlier")
    for env, more, message in (
        ("python_math", model, "environment 'python_math' has no describe(sample)"),
        ("text_game", [], "--hindsight needs a tokenizer, got no --model"),
        ("text_game", [*model, "--split", "val"], "no episode of --split val is stored below"),
        ("text_game", [*model, "--protocol", "ragen"], "none of 1 episodes gives a row, got 0 solved, 0 relabelled"),
        ("text_game", [*model, "--check", str(earlier)], "--hindsight cannot be combined with --check"),
    ):
        assert main(["prepare", env, "--hindsight", str(run), "--out", str(tmp_path / "x"), *more]) == 2
        assert message in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.glob("x/*")] == ["earlier"]
