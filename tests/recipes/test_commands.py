"""Every documented command that makes rows runs as it is written, with fewer rows, and its files pass its own check."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from system_runs import prepared

from verl_agentic.base.paths import envs_dir, recipes_dir
from verl_agentic.cli import main
from verl_agentic.config.recipe_groups import load_recipe, recipe_names

_COMMAND = re.compile(r"verl-agentic prepare ((?:[^\n`#\\]|\\\n)+)")
_STORED = ("--solved", "--hindsight", "--rewrite", "--learnable", "--check")
"""Options that need a run or files, as `games=` does."""


def documented() -> Iterator[tuple[str, str]]:
    """Yields page and arguments of the commands for bundled environments."""
    systems = [load_recipe("system", name) for name in recipe_names("system")]
    pages = {f"{system.name}.md": f"{system.readme}\n{system.noted('toy')}\n" for system in systems}
    folders = (recipes_dir(), envs_dir(), Path(__file__).parents[2] / "docs")
    pages |= {
        f"{path.parent.name}/{path.name}": path.read_text() for folder in folders for path in folder.rglob("*.md")
    }
    seen = set()
    for page, text in sorted(pages.items()):
        for command in _COMMAND.findall(text):
            arguments = " ".join(command.replace("\\\n", " ").split())
            words = arguments.split()
            is_bundled = (envs_dir() / words[0] / "__init__.py").is_file()
            is_stored = {*words} & {*_STORED, "..."} or "games=" in arguments
            if is_bundled and arguments not in seen and not is_stored:
                seen.add(arguments)
                yield page, arguments


COMMANDS = list(documented())


@pytest.mark.sample(3)
@pytest.mark.parametrize(("page", "arguments"), COMMANDS, ids=[f"{page}:{words}" for page, words in COMMANDS])
def test_a_documented_command_writes_rows_that_its_check_passes(
    page: str, arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(arguments)
    files = prepared(words, tmp_path, count=8)
    for path in files.values():
        assert main(["prepare", words[0], "--check", str(path)]) == 0
        assert f"{path}: 8 rows, fine" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")  # the command leaves its file open
def test_the_documented_rows_of_rlvrr_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    written = [{"input": "Explain alpha.", "label": "a[[[SPLIT]]]b"}]
    Path("sampled_dataset_keypoint_keywords_style_multi_ref.json").write_text(json.dumps(written))
    code = re.search(r"<<'PY'\n(.*?)^PY$", load_recipe("system", "rlvrr").readme, re.MULTILINE | re.DOTALL)
    assert code is not None
    scope: dict[str, Any] = {}
    exec(compile(code[1], "rlvrr.md", "exec"), scope)
    import pyarrow.parquet as pq

    (row,) = pq.read_table("rlvrr.parquet").to_pylist()
    assert row["prompt"] == [{"role": "user", "content": "Explain alpha."}]
    assert row["reward_model"] == {"ground_truth": "a[[[SPLIT]]]b"} and row["data_source"] == "rlvrr"
