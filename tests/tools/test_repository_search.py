"""grep, glob and read: right results in the order of paths, bounded output, and nothing outside of the repository."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from verl_agentic.base.types import ToolResult
from verl_agentic.sandbox.interface import CommandResult
from verl_agentic.tools.repository_search import MAX_LINES, RepositorySearch


@pytest.fixture
def search(tmp_path: Path) -> RepositorySearch:
    repository = tmp_path / "repository"
    files = {
        "src/b.py": "def b():\n    return a()\n",
        "src/a.py": "def a():\n    return 1",
        "long.py": "".join(f"x = {number}\n" for number in range(1_000)),
        "wide.txt": "y" * 5_000 + "\n",
        "notes.md": "def in words\n",
        ".git/config": "def secret\n",
        "-e.py": "dash = 1\n",
    }
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    (tmp_path / "outside.py").write_text("def outside(): pass\n")

    async def run(script: str, arguments: Sequence[str]) -> CommandResult:  # the scripts are ours
        done = subprocess.run(
            ["bash", "-c", script, "search", *arguments], cwd=repository, capture_output=True, check=False
        )
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode()
        return CommandResult(stdout=out, stderr=err, exit_code=done.returncode, timed_out=False, wall_s=0)

    return RepositorySearch(run)


async def test_grep_gives_path_line_and_text_in_the_order_of_paths(search: RepositorySearch) -> None:
    assert (await search.grep("def .*\\(")).content == "src/a.py:1:def a():\nsrc/b.py:1:def b():"
    assert (await search.grep("def", include="*.md")).content == "notes.md:1:def in words"
    assert (await search.grep("return", path="src/b.py")).content == "src/b.py:2:    return a()"
    assert (await search.grep("dash", path="-e.py")).content == "-e.py:1:dash = 1"
    assert (await search.grep("secret")).content == "No line matches 'secret'."


async def test_glob_gives_files_in_order(search: RepositorySearch) -> None:
    assert (await search.glob("**/*.py")).content == "-e.py\nlong.py\nsrc/a.py\nsrc/b.py"
    assert (await search.glob("*.md")).content == "notes.md"
    assert (await search.glob("src")).content == "No file matches 'src'."


async def test_read_numbers_the_lines_and_says_how_many_there_are(search: RepositorySearch) -> None:
    assert (await search.read("src/a.py")).content == "src/a.py has 2 lines.\n1: def a():\n2:     return 1"
    assert (await search.read("long.py", 7, 8)).content == "long.py has 1000 lines.\n7: x = 6\n8: x = 7"
    assert (await search.read("src/a.py", 3, 9)).content == "src/a.py has 2 lines."


async def test_outputs_are_bounded(search: RepositorySearch) -> None:
    lines = (await search.read("long.py", 1, 1_000)).content.split("\n")
    assert len(lines) == MAX_LINES + 1 and lines[-1] == f"{MAX_LINES}: x = {MAX_LINES - 1}"
    found = (await search.grep("^.")).content
    assert len(found) < 17_000 and found.endswith("[more is left out; search for less]")
    assert len((await search.grep("y", path="wide.txt")).content) <= 300


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside.py", "src/../../outside.py", "a\0b", "", "x" * 501, "\ud800"]
)
async def test_paths_that_leave_the_repository_or_are_none_are_refused(search: RepositorySearch, path: str) -> None:
    results: list[ToolResult] = [await search.grep("def", path=path), await search.glob(path), await search.read(path)]
    assert all(result.is_error and "outside()" not in result.content for result in results)


async def test_wrong_arguments_say_what_to_do(search: RepositorySearch) -> None:
    assert "Unmatched" in (await search.grep("(")).content
    assert "there is no file 'no.py'; use glob" in (await search.read("no.py")).content
    assert "in order, got 5 and 2" in (await search.read("long.py", 5, 2)).content
    assert (await search.grep("def", path="no/such")).is_error
    assert (await search.read("long.py", 2**62, 2**62)).is_error


async def test_shell_syntax_in_arguments_is_text(search: RepositorySearch) -> None:
    for text in ("$(touch made)", "`touch made`", "x; touch made", "' touch made '"):
        await search.grep(text, include=text)
        await search.glob(text)
        await search.read(text)
    assert (await search.glob("made")).content == "No file matches 'made'."


async def test_a_search_that_is_stopped_is_an_error_and_no_failure() -> None:
    async def run(script: str, arguments: Sequence[str]) -> CommandResult:
        return CommandResult(stdout="half", stderr="", exit_code=-9, timed_out=True, wall_s=10)

    result = await RepositorySearch(run).grep("(a*)*b")
    assert result.is_error and "took too long" in result.content
