"""`data mix`: shares are those of the rows or tokens that are written, and equal seeds give equal files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.data.making.mix_files import mix_files
from verl_agentic.log.files.record_files import read_json_lines, write_json_lines


def write(path: Path, count: int, length: int) -> Path:
    write_json_lines(({"input_ids": [1] * length, "name": f"{path.stem}{n}"} for n in range(count)), path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """10 rows of 30 tokens, and 40 rows of 10 tokens."""
    return write(tmp_path / "agent.jsonl", 10, 30), write(tmp_path / "general.jsonl", 40, 10)


def names(path: Path) -> list[str]:
    return [row["name"] for _, row in read_json_lines(path)]


def count(path: Path) -> dict[str, int]:
    return dict(Counter(name.rstrip("0123456789") for name in names(path)))


@pytest.mark.parametrize(
    ("by", "shares", "total", "expected"),
    [
        ("rows", (0.2, 0.8), None, {"agent": 10, "general": 40}),
        ("rows", (0.5, 0.5), None, {"agent": 10, "general": 10}),
        ("rows", (0.25, 0.75), 20, {"agent": 5, "general": 15}),
        ("tokens", (0.5, 0.5), 600, {"agent": 10, "general": 30}),
        ("tokens", (0.2, 0.8), 300, {"agent": 2, "general": 24}),
    ],
)
def test_shares_are_those_of_the_written_rows_or_tokens(
    files: tuple[Path, Path], tmp_path: Path, by: Any, shares: tuple[float, float], total: int | None, expected: Any
) -> None:
    parts = mix_files(dict(zip(files, shares, strict=True)), tmp_path / "out.jsonl", unit=by, total=total)
    assert count(tmp_path / "out.jsonl") == expected and len(set(names(tmp_path / "out.jsonl"))) == sum(
        expected.values()
    )
    assert [part.share for part in parts] == pytest.approx(shares) and [part.repeats for part in parts] == [1, 1]
    assert [part.tokens for part in parts] == [30 * expected["agent"], 10 * expected["general"]]


def test_equal_seeds_give_equal_files(files: tuple[Path, Path], tmp_path: Path) -> None:
    def mixed(seed: int) -> list[str]:
        mix_files(dict(zip(files, (0.5, 0.5), strict=True)), tmp_path / "out.jsonl", total=8, seed=seed)
        return names(tmp_path / "out.jsonl")

    assert mixed(1) == mixed(1) != mixed(2)
    assert mixed(1) != sorted(mixed(1)), "the files are mixed, not joined"


def test_a_file_that_is_too_small_is_refused_or_repeated_evenly(files: tuple[Path, Path], tmp_path: Path) -> None:
    shares, out = dict(zip(files, (0.5, 0.5), strict=True)), tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"agent\.jsonl"):
        mix_files(shares, out, total=50)
    agent, general = mix_files(shares, out, total=50, may_repeat=True)
    copies = Counter(name for name in names(out) if name.startswith("agent"))
    assert (agent.repeats, general.repeats) == (3, 1)
    assert len(copies) == 10 and set(copies.values()) == {2, 3}


def test_what_cannot_be_mixed_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    agent, general = files
    out = tmp_path / "out.jsonl"
    write_json_lines([{"prompt": "1+1?"}], tmp_path / "rl.jsonl")
    for shares, message in (
        ({agent: 0.5, general: 0.6}, "sum to 1"),
        ({agent: 1.0, general: 0.0}, "must be positive"),
        ({agent: 0.5, tmp_path / "none.jsonl": 0.5}, "no such data file"),
        ({agent: 0.5, tmp_path / "rl.jsonl": 0.5}, "need a common column"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            mix_files(shares, out)
    with pytest.raises(DataError, match="shares"):
        mix_files({agent: 0.5, general: 0.5}, out, unit="tokens", total=30)
    with pytest.raises(DataError, match="input_ids"):
        mix_files({tmp_path / "rl.jsonl": 1.0}, out, unit="tokens")
    (tmp_path / "link.jsonl").symlink_to(agent)
    with pytest.raises(ConfigError, match="rows go into another"):
        mix_files({agent: 1.0}, tmp_path / "link.jsonl")
    with pytest.raises(ConfigError, match="rows go into another"):
        mix_files({agent: 1.0}, agent.parent / "." / ".." / agent.parent.name / agent.name)
    assert not out.exists()
