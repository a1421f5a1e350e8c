"""The page of all configuration keys is generated from the classes that read them, and misses none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verl_agentic.adapters.sections import all_sections

_PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page, written by a process of its own, because the adapters that it loads change verl."""
    path = tmp_path_factory.mktemp("page") / "configuration.md"
    secrets = {"VERL_AGENTIC_SANDBOX_TOKEN": "hunter2", "VERL_AGENTIC_SANDBOX_URL": "http://secret"}
    command = [sys.executable, "-m", "verl_agentic.adapters.configuration_page", str(path)]
    subprocess.run(command, env={**os.environ, **secrets}, check=True, capture_output=True, timeout=300)
    return path.read_text(encoding="utf-8")


def test_the_page_is_current_whatever_the_environment(written: str) -> None:
    is_current = written == _PAGE.read_text(encoding="utf-8")
    assert is_current, "python -m verl_agentic.adapters.configuration_page docs/configuration.md"


def test_every_section_that_is_read_is_on_the_page_and_every_key_says_its_type_and_meaning(written: str) -> None:
    keys, path = set(), ""
    for line in written.splitlines():
        if heading := re.match(r"### `?([^`]+)", line):
            path = heading[1]
            keys.add(path)
        elif line.startswith("| `"):
            name, accepted, *_, meaning = line.strip("| ").split(" | ")
            assert meaning and accepted and not re.search(r"typing|<class", accepted), line
            keys.add(f"{path}.{name.strip('`')}")
    assert set(all_sections()) <= keys
