"""The page of all configuration keys is generated from the classes that read them, and misses none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verl_agentic.verl.config_root import PLUGIN
from verl_agentic.verl.sections import all_sections

pytestmark = pytest.mark.slow
_DOCS = Path(__file__).parents[2] / "docs"
_PAGE, _PROGRAM = _DOCS / "configuration.md", _DOCS / "site" / "configuration_page.py"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Both files, written by a process of its own, because the adapters that it loads change verl."""
    folder = tmp_path_factory.mktemp("page")
    secrets = {"VERL_AGENTIC_SANDBOX_TOKEN": "hunter2", "VERL_AGENTIC_SANDBOX_URL": "http://secret"}
    names = ("configuration.md", "plugin.yaml")
    command = [sys.executable, str(_PROGRAM), *(str(folder / name) for name in names)]
    subprocess.run(command, env={**os.environ, **secrets}, check=True, capture_output=True, timeout=300)
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


@pytest.mark.parametrize("path", [_PAGE, PLUGIN], ids=lambda path: path.name)
def test_the_page_and_the_keys_of_the_command_line_are_current(path: Path, written: dict[str, str]) -> None:
    is_current = written[path.name] == path.read_text(encoding="utf-8")
    assert is_current, f"python docs/site/configuration_page.py {_PAGE} {PLUGIN}"


def test_every_section_that_is_read_is_on_the_page_and_every_key_has_a_type_and_a_meaning(
    written: dict[str, str],
) -> None:
    keys, place = set(), ""
    for line in written["configuration.md"].splitlines():
        if found := re.match(r"In verl's configuration: `(.*)`", line):
            place = found[1]
            keys.add(place)
        elif line.startswith("| `"):
            name, accepted, *_, meaning = line.strip("| ").split(" | ")
            assert meaning and accepted and not re.search(r"typing|<class", accepted), line
            keys.add(f"{place}.{name.strip('`')}")
    assert set(all_sections()) <= keys
