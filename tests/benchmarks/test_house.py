"""Folders that import each other in a circle are shown, and fail the check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_HOUSE = Path(__file__).parents[2] / "benchmarks" / "house.py"


@pytest.mark.parametrize(
    ("below", "circle"),
    [
        ("from verl_agentic.base.top import answer\n", "verl_agentic.base, verl_agentic.base.inside"),
        ("def ask() -> None:\n    from verl_agentic.log.lines import answer\n",
         "verl_agentic.base, verl_agentic.base.inside, verl_agentic.log"),
        ("from verl_agentic import answer\n", ""),  # it imports nothing when it is loaded
        ("import os\n", ""),
    ],
)  # fmt: skip
def test_a_circle_between_folders_fails_the_check(tmp_path: Path, below: str, circle: str) -> None:
    files = {
        "__init__": "",
        "plugin": "from verl_agentic.base.top import answer\n",
        "base/__init__": "",
        "base/top": "from verl_agentic.base.inside.part import ask\n\n\ndef _read_answer() -> int:\n    answer = 1\n",
        "base/inside/__init__": "",
        "base/inside/part": below,
        "log/__init__": "",
        "log/lines": "from verl_agentic.base.top import answer\n",
    }
    for name, text in files.items():
        path = tmp_path / "verl_agentic" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = subprocess.run([sys.executable, str(_HOUSE), str(tmp_path), "--check"], capture_output=True, text=True)
    shown = run.stdout.partition("circles between folders: ")[2].split("\n")
    assert (run.returncode, shown[0], shown[1].strip()) == (int(bool(circle)), str(int(bool(circle))), circle), run
