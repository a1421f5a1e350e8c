"""`verl-agentic data export`: what it prints and writes, from runs and from evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_logs import log_row

from verl_agentic.cli import main
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.reader import write_run
from verl_agentic.log.run_files import EVALUATION


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


def test_evaluations_are_exported_with_the_ids_of_the_server_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def episode(sample: int, ids: str = "exact", **columns: Any) -> dict[str, Any]:
        columns = {"step": 0, "split": "val", "loop": "evaluate", "id_source": ids, "acc": 1.0 - sample, **columns}
        return log_row(sample, [([3 + sample], [8]), ([9], [])], prompt_ids=[1, 2], **columns)

    run, out = tmp_path / "eval", tmp_path / "pairs.jsonl"
    unusable = [episode(2, ids="approximate"), episode(3, is_void=True)]
    write_run(run, trajectories=[episode(0), episode(1), *unusable])
    (run / EVALUATION).write_text("{}")
    assert main(["data", "export", str(run), "--as", "pairs", "--out", str(out)]) == 0
    ((_, pair),) = numbered_records(out)
    assert (pair["prompt_ids"], pair["chosen_ids"], pair["rejected_ids"]) == ([1, 2], [3, 8, 9], [4, 8, 9])
    assert pair["chosen_mask"] == [1, 0, 1] and "1 rows without exact token ids" in capsys.readouterr().out
    write_run(run, trajectories=unusable)
    assert main(["data", "export", str(run), "--as", "sft", "--out", str(out)]) == 2
    assert "without exact token ids" in capsys.readouterr().err
    write_run(run / "rl", trajectories=[log_row(0, [([4], [])])])
    assert main(["data", "export", str(run), "--as", "sft", "--out", str(out)]) == 2, "an evaluation stands for itself"
