"""Folders are tried without a trace, and a checkpoint that cannot be continued from is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf

from verl_agentic.verl.extensions.preflight.folders import checkpoint_faults, unwritable_folders

KEYS = ("default_local_dir", "rollout_data_dir", "validation_data_dir", "log.dir")


def config(folder: Path, **trainer: Any) -> Any:
    trainer = {"default_local_dir": str(folder), "resume_mode": "auto", "total_training_steps": None, **trainer}
    log_dir = trainer.pop("log.dir", None)
    rollout = {"custom": {"agentic": {"log": {"dir": log_dir}}}}
    return OmegaConf.create({"trainer": trainer, "actor_rollout_ref": {"rollout": rollout}})


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["a file", "below a file", "a link to nowhere", "no folder can be made", "too long"])
def test_a_folder_that_nothing_can_be_written_to_is_named(tmp_path: Path, key: str, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "deep")
    folders = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "a",
        "a link to nowhere": tmp_path / "link",
        "no folder can be made": Path("/proc/nope/out"),
        "too long": tmp_path / ("x" * 300),
    }
    (message,) = unwritable_folders(config(tmp_path / "ok", **{key: str(folders[kind])}))
    assert key in message and str(folders[kind]) in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_folders_that_can_be_made_are_fine_and_nothing_is_left_of_them(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "kept").write_text("x")
    assert not unwritable_folders(config(tmp_path / "a" / "b", rollout_data_dir=str(tmp_path / "old")))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "old"]
    assert not unwritable_folders(config(tmp_path, default_local_dir="hdfs://there/run"))


def test_a_checkpoint_to_continue_from_must_be_whole_and_leave_steps(tmp_path: Path) -> None:
    whole, empty = tmp_path / "global_step_8", tmp_path / "global_step_9"
    (whole / "actor").mkdir(parents=True)
    empty.mkdir()
    (tmp_path / "global_step_²" / "actor").mkdir(parents=True)

    def faults(**trainer: Any) -> bool:
        return bool(checkpoint_faults(config(tmp_path, **trainer)))

    by_path = {"resume_mode": "resume_path"}
    assert not faults()
    assert not faults(**by_path, resume_from_path=str(whole))
    assert not faults(**by_path, resume_from_path=str(whole), total_training_steps=9)
    named = tmp_path / "run_global_step_8"
    (named / "actor").mkdir(parents=True)
    assert not faults(**by_path, resume_from_path=str(named), total_training_steps=9), "verl reads the step, too"
    wrong = [
        None,
        str(tmp_path / "global_step_²"),
        str(empty),
        str(tmp_path),
        str(whole) + "/",
        str(tmp_path / "global_step_7"),
        str(whole / "actor"),
        8,
    ]
    assert all(faults(**by_path, resume_from_path=path) for path in wrong)
    assert faults(**by_path, resume_from_path=str(whole), total_training_steps=8)
    assert faults(resume_mode="newest")

    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    for text, is_fault in {"8": False, "9": True, "7": False, "eight": True}.items():
        tracker.write_text(text)
        assert faults() == is_fault, text
        assert not faults(resume_mode="disable")
