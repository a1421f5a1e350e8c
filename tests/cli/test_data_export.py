"""`verl-agentic data export`: what it prints and writes, from runs and from evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_logs import log_row

from verl_agentic.cli import main
from verl_agentic.data.stored_samples import json_records
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.reader import write_run


def test_a_run_becomes_a_file_and_the_numbers_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [log_row(session, [([4 + session], [])], acc=float(session % 2)) for session in range(4)]
    log.append(log_row(4, [([9], [])], is_void=True))
    run, out = write_run(tmp_path / "run", trajectories=log), tmp_path / "sft.parquet"
    arguments = ["data", "export", str(run), "--out", str(out)]
    assert main([*arguments, "--as", "sft", "--where", "acc >= 1 and numbers['x'] != 1 or acc >= 1"]) == 0
    assert capsys.readouterr().out == (
        f"{out}: 2 sft from 2 rows of the log\n"
        "  left out: 1 rows void\n"
        "  left out: 2 rows that fail --where\n"
        f"data.train_files={out}\n"
    )
    assert [record["session"] for _, record in numbered_records(out)] == [1, 3]
    assert main([*arguments, "--as", "sft", "--where", "acc > 1"]) == 2
    assert "DataError" in capsys.readouterr().err
    assert len(list(numbered_records(out))) == 2, "an earlier file stays"
    (tmp_path / "critic.py").write_text("def critic(messages, text):\n    return 1.0\n")
    critic = ["--critic", f"{tmp_path / 'critic.py'}:critic", "--critic-weight", "0"]
    assert main([*arguments, "--as", "pairs", "--by", "acc", "--gap", "0.5", *critic]) == 2
    assert "critic" in capsys.readouterr().err
    assert main([*arguments, "--as", "pairs", "--gap", "0.5"]) == 0
    assert [(r["chosen_ids"], r["rejected_ids"]) for _, r in numbered_records(out)] == [([5], [4])]


def episode(sample: int, *, ids: str = "exact", void: bool = False) -> dict[str, Any]:
    return {
        "key": f"t/{sample}",
        **{"task": "t", "row": 0, "task_id": "t1", "sample": sample, "outcome": 1.0 - sample, "reward": 1.0 - sample},
        **{"void": void, "stop_reason": "answered", "error": "", "token_ids": ids, "numbers": {}, "messages": []},
        "trajectories": [
            {
                "prompt_ids": [1, 2],
                "response_ids": [3 + sample, 8, 9],
                "response_mask": [1, 0, 1],
                "log_probs": None,
                "segments": [[0, 1, "model", 0], [1, 2, "tool", 0], [2, 3, "model", 1]],
                "token_rewards": {},
            }
        ],
    }


def test_evaluations_are_exported_with_the_ids_of_the_server_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [episode(0), episode(1), episode(2, ids="approximate"), episode(3, void=True)]
    run, out = tmp_path / "eval", tmp_path / "pairs.jsonl"
    run.mkdir()
    (run / "episodes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["data", "export", str(run), "--as", "pairs", "--out", str(out)]) == 0
    ((_, pair),) = numbered_records(out)
    assert (pair["prompt_ids"], pair["chosen_ids"], pair["rejected_ids"]) == ([1, 2], [3, 8, 9], [4, 8, 9])
    assert pair["chosen_mask"] == [1, 0, 1] and "1 of 4 episodes" in caplog.text
    (run / "episodes.jsonl").write_text(json.dumps(episode(2, ids="approximate")) + "\n")
    assert main(["data", "export", str(run), "--as", "sft", "--out", str(out)]) == 2
    assert "episodes.jsonl" in capsys.readouterr().err
    write_run(run / "rl", trajectories=[log_row(0, [([4], [])])])
    assert main(["data", "export", str(run), "--as", "sft", "--out", str(out)]) == 2
    assert "evaluations" in capsys.readouterr().err


def test_an_evaluation_is_not_replaced_by_its_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episodes = tmp_path / "episodes.jsonl"
    episodes.write_text(json.dumps(episode(0)) + "\n")
    assert main(["data", "export", str(tmp_path), "--as", "sft", "--out", str(episodes)]) == 2
    assert "evaluation" in capsys.readouterr().err
    assert json.loads(episodes.read_text()) == episode(0)


def test_an_evaluation_may_go_on_while_it_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def growing(path: Path) -> Any:
        records = list(json_records(path))
        path.write_text(path.read_text() + json.dumps(episode(len(records))) + "\n")
        return records

    monkeypatch.setattr("verl_agentic.evaluate.evaluation_log.json_records", growing)
    (tmp_path / "episodes.jsonl").write_text(json.dumps(episode(0)) + "\n")
    assert main(["data", "export", str(tmp_path), "--as", "sft", "--out", str(tmp_path / "sft.jsonl")]) == 0
    assert [record["session"] for _, record in numbered_records(tmp_path / "sft.jsonl")] == [0]
