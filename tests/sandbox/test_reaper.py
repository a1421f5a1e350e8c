"""The reaper takes what dead runs left, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from verl_agentic.sandbox.boxes import cgroups, reaper


def _owner_of_a_dead_process() -> str:
    code = "from verl_agentic.sandbox.boxes import reaper; print(reaper.owner())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_only_a_process_that_has_ended_is_dead() -> None:
    pid, start, namespace = reaper.owner()[1:].split("-")
    assert not reaper.is_dead(reaper.owner()) and not reaper.is_dead(f"{reaper.owner()}_root_x")
    assert reaper.is_dead(_owner_of_a_dead_process())
    assert reaper.is_dead(f"p{pid}-{int(start) + 1}-{namespace}_0"), "the number has been used again"
    assert not reaper.is_dead(f"p{pid}-{int(start) + 1}-{int(namespace) + 1}_0"), (
        "who lives elsewhere is not known here"
    )
    assert not reaper.is_dead("probe_17") and not reaper.is_dead("") and not reaper.is_dead("p1-2-3x")


def test_folders_of_dead_runs_go_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cgroups, "all_folders", list)  # other runs may have died, too
    mine = reaper.make_folder("root")
    dead = tmp_path / f"{reaper.PREFIX}{_owner_of_a_dead_process()}_root_x"
    dead.mkdir()
    (dead / "file").write_text("x")
    stranger = tmp_path / "other"
    stranger.mkdir()
    assert reaper.reap() == [str(dead)]
    assert sorted(tmp_path.iterdir()) == sorted([mine, stranger])


def test_a_link_in_place_of_a_folder_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cgroups, "all_folders", list)  # other runs may have died, too
    goal = tmp_path / "goal"
    goal.mkdir()
    os.symlink(goal, tmp_path / f"{reaper.PREFIX}{_owner_of_a_dead_process()}_root_x")
    assert reaper.reap() == [] and goal.is_dir()


def test_control_groups_of_dead_runs_go() -> None:
    reason = cgroups.why_not(reaper.owner())
    if reason is not None:
        pytest.skip(reason)
    dead, mine = (cgroups.make_group(f"{name}_test") for name in (_owner_of_a_dead_process(), reaper.owner()))
    try:
        reaper.reap()
        assert not any(folder.exists() for folder in dead.folders.values())
        assert all(folder.exists() for folder in mine.folders.values())
    finally:
        mine.remove()
