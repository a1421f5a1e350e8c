"""The entrance pages are short, and their commands work as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from page_commands import ROOT, read_commands, read_section, write_files

_LAST_SECTIONS = {"own_method": "## Get a figure", "own_environment": "## Train a large model"}
"""Page -> its section with commands that need a model which no command of the page makes."""


@pytest.mark.parametrize("name", ["quickstart", "from_verl", "own_method", "own_environment"])
def test_an_entrance_page_has_at_most_600_words(name: str) -> None:
    assert len((ROOT / "docs" / f"{name}.md").read_text().split()) <= 600


def _run_page(name: str, folder: Path, *, trains: bool) -> str:
    """Writes the files of a page, runs its commands in one shell and returns their output."""
    text = read_section(f"docs/{name}.md", end=_LAST_SECTIONS[name])
    write_files(text, folder)
    lines = read_commands(text)
    after_run = ("main_ppo", "dryrun", "quickstart", " runs/")
    script = [line for line in lines if trains or not any(word in line for word in after_run)]
    process = subprocess.run(
        ["bash", "-eux", "-c", "\n".join(script)], cwd=folder, input="0\n", capture_output=True, text=True,
        timeout=5400, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "RAY_ADDRESS": "local"},
    )  # fmt: skip
    assert process.returncode == 0, f"{process.stdout[-3000:]}\n{process.stderr[-3000:]}"
    return process.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", _LAST_SECTIONS)
def test_commands_of_an_entrance_page_before_training_work_as_they_stand(name: str, tmp_path: Path) -> None:
    assert "this run can start" in _run_page(name, tmp_path, trains=False)


@pytest.mark.nightly
def test_the_page_of_the_researcher_ends_with_two_runs_that_differ_in_the_change(tmp_path: Path) -> None:
    output = _run_page("own_method", tmp_path, trains=True)
    table = output[output.index("different keys") :]
    assert "algorithm.adv_estimator" in table and "my_method.py:centred" in table
    assert (tmp_path / "compare.html").is_file()


@pytest.mark.nightly
def test_the_page_of_the_author_ends_with_episodes_of_the_new_environment(tmp_path: Path) -> None:
    _run_page("own_environment", tmp_path, trains=True)
    assert "are in the store?" in (tmp_path / "episodes.html").read_text()
