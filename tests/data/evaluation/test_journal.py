"""A journal survives an interruption, and an evaluation is only taken up again with the same settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Message
from verl_agentic.evaluate.journal import Journal, fingerprint, keep_settings


def test_records_are_there_again_and_of_several_with_a_key_the_last_one_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "j.jsonl")
    for record in ({"key": "a", "n": 1}, {"key": "b", "n": 2, "text": "\u2028é"}, {"key": "a", "n": 3}):
        journal.append(record)
    assert (tmp_path / "new" / "j.jsonl").read_text().count("\n") == 3, "written through, before it is closed"
    journal.close()
    again = Journal(tmp_path / "new" / "j.jsonl")
    assert again.records == journal.records == {"a": {"key": "a", "n": 3}, "b": {"key": "b", "n": 2, "text": "\u2028é"}}
    again.append({"key": "c"})
    again.close()
    assert set(Journal(tmp_path / "new" / "j.jsonl").records) == {"a", "b", "c"}


@pytest.mark.parametrize("rest", ['{"key": "b", "n"', '{"key": "b"}', "\xff"])
def test_a_last_line_that_was_cut_off_is_dropped_and_does_not_spoil_the_next(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"key": "a"}\n' + rest)
    journal = Journal(path)
    assert set(journal.records) == {"a"}
    journal.append({"key": "c"})
    journal.close()
    assert set(Journal(path).records) == {"a", "c"}


def test_a_file_of_something_else_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"key": "a"}\n{"task": 1}\n')
    with pytest.raises(DataError, match=r"j.jsonl:2 has no key"):
        Journal(path)


def test_a_fingerprint_is_that_of_the_content_without_its_place() -> None:
    row = EnvRow(prompt=(Message("user", "q"),), ground_truth="1", extra={"index": 3, "x": [1]})
    same = EnvRow(prompt=(Message("user", "q"),), ground_truth="1", extra={"x": [1], "index": 9})
    others = [
        EnvRow(prompt=(Message("user", "p"),), ground_truth="1", extra={"x": [1]}),
        EnvRow(prompt=(Message("user", "q"),), ground_truth="2", extra={"x": [1]}),
        EnvRow(prompt=(Message("user", "q"),), ground_truth="1", extra={"x": [2]}),
    ]
    assert fingerprint(row) == fingerprint(same)
    assert len({fingerprint(other) for other in [row, *others]}) == 4


def test_settings_are_kept_and_others_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "out" / "evaluation.json"
    keep_settings(path, {"model": "other"}, has_begun=False)
    keep_settings(path, {"model": "m", "limits": ("a", 1)}, has_begun=False)
    keep_settings(path, {"model": "m", "limits": ("a", 1)}, has_begun=True)
    with pytest.raises(ConfigError, match=r"holds another evaluation, got model was 'm' and is 'n'; use another --out"):
        keep_settings(path, {"model": "n", "limits": ("a", 1)}, has_begun=True)
    path.write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        keep_settings(path, {}, has_begun=True)


_WRITER = """
import os, sys, time
from pathlib import Path
from verl_agentic.evaluate.journal import Journal
journal = Journal(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    time.sleep(60)
journal.append({"key": "a"})
print(child, flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_has_ended_in_whatever_way(tmp_path: Path) -> None:
    path = tmp_path / "out" / "j.jsonl"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        try:
            with pytest.raises(ConfigError, match="another process"):
                Journal(path)
            first.kill()
            first.wait()
            assert set(Journal(path).records) == {"a"}, "a child of the first process still runs"
        finally:
            os.kill(child, signal.SIGKILL)
            first.kill()


def test_a_journal_is_free_when_it_is_closed_or_gone_and_taken_again_to_write(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first = Journal(path)
    with pytest.raises(ConfigError):
        Journal(path)
    first.close()
    Journal(path)  # nobody keeps it
    first.append({"key": "a"})
    with pytest.raises(ConfigError):
        Journal(path)
    first.close()
