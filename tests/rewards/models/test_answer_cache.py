"""The cache of verdicts: shared by processes, bounded, and never in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.answer_cache import VerdictCache, key_of

_WRITER = """
import sys
from pathlib import Path
from verl_agentic.graders.models.answer_cache import VerdictCache, key_of
cache, me = VerdictCache(Path(sys.argv[1])), int(sys.argv[2])
for round in range(20):
    for number in range(20):
        found = cache.get(key_of(number))
        assert found is not None and found["value"] == number and len(found["padding"]) == 5_000, found
        cache.put(key_of(number), {"value": number, "padding": str(me) * 5_000})
"""


def test_a_value_is_found_under_its_content_and_under_no_other(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    assert cache.get(key_of({"a": 1, "b": [2]})) is None
    cache.put(key_of({"a": 1, "b": [2]}), {"value": 0.5})
    assert VerdictCache(tmp_path).get(key_of({"b": [2], "a": 1})) == {"value": 0.5}
    assert cache.get(key_of({"a": 1, "b": [3]})) is None
    assert key_of("\ud800") != key_of("\ud801")  # what is no text has a name, too


@pytest.mark.slow
def test_processes_that_write_the_same_verdicts_never_see_half_a_file(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    for number in range(20):
        cache.put(key_of(number), {"value": number, "padding": "-" * 5_000})
    processes = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), str(i)]) for i in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.rglob("*.json"))) == 20


def test_who_reads_while_a_verdict_is_replaced_reads_all_of_the_old_one(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.put("ab1", {"value": "old"})
    with (tmp_path / "ab" / "ab1.json").open() as reader:
        cache.put("ab1", {"value": "new"})
        assert json.load(reader) == {"value": "old"}
    assert cache.get("ab1") == {"value": "new"}


def test_what_was_used_longest_ago_goes_when_a_shard_is_full(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, max_mb=16)  # 64 KiB a shard
    keys = [f"ab{number}" for number in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, {"value": "x" * 20_000})
        os.utime(tmp_path / "ab" / f"{key}.json", (age, age))
    assert cache.get(keys[0]) is not None  # used: younger than the others now
    cache.put(keys[3], {"value": "x" * 20_000})
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]
    cache.put("ab9", {"value": "x" * 70_000})
    assert cache.get("ab9") is None, "larger than a shard"
    for number in range(300):
        cache.put(f"cd{number}", {"value": "x" * 1_000})
    assert sum(path.stat().st_size for path in (tmp_path / "cd").glob("*.json")) <= 65_536


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    cache = VerdictCache(tmp_path)
    cache.put("ab1", {"value": 1})
    (tmp_path / "ab" / "ab1.json").write_bytes(content)
    assert cache.get("ab1") is None
    cache.put("ab1", {"value": 2})
    assert json.loads((tmp_path / "ab" / "ab1.json").read_text()) == {"value": 2}


def test_a_cache_that_could_hold_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"0\.5"):
        VerdictCache(tmp_path, max_mb=0.5)
