"""The paths of the first hour find their commands on the pages, and count what fails."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from page_commands import read_commands, read_section

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "first_hour.py"


@pytest.fixture
def first_hour(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("first_hour", _SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "first_hour", module)  # for its dataclass
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(module)
    return module


def test_failed_commands_are_counted_and_the_next_ones_run(first_hour: Any, tmp_path: Path) -> None:
    hour = first_hour.Hour(folder=tmp_path, environment=dict(os.environ))
    output = hour.run(["false", "VALUE=3", "echo so $VALUE    far | cat", "ls nothing"])
    hour.require(is_met="so 3 far" in output, success="the output")
    hour.require(is_met=False, success="a model that learns")
    assert hour.failures == ["false", "ls nothing", "no success: a model that learns"]
    assert hour.wall_s > 0 and hour.cpu_s > 0


def test_every_path_finds_its_commands(first_hour: Any) -> None:
    assert first_hour._readme_install()[0].startswith("pip install .")
    starts = {
        "README.md": "make quickstart",
        "docs/from_verl.md": "sed 's/python3* -m verl.trainer.main_ppo/verl-agentic preflight/' run.sh",
        "docs/own_method.md": "verl-agentic compare runs/base runs/centred",
        "docs/own_environment.md": "verl-agentic quickstart --env ./mine",
    }
    for page, start in starts.items():
        assert any(line.startswith(start) for line in read_commands(read_section(page))), page
