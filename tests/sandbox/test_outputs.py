"""Kept output and bytecode, in every backend that keeps files."""

from __future__ import annotations

import os

import pytest
from boxes import LIMITS, python
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.sandbox.inside.kept_output import Output, head_and_tail
from verl_agentic.sandbox.interface import Backend, Command, Limits, Sandbox


@pytest.fixture
def backend(each_backend: Backend) -> Backend:
    return each_backend


@given(pieces=st.lists(st.binary(max_size=40), max_size=12), limit=st.integers(1, 50))
def test_every_way_to_keep_output_keeps_the_same_head_and_tail(pieces: list[bytes], limit: int) -> None:
    data = b"".join(pieces)
    added, read = Output(), Output()
    reading, writing = os.pipe()
    for output in (added, read):
        output.begin(limit)
    for piece in filter(None, pieces):
        added.add(piece)
        os.write(writing, piece)
        read.read(reading)
    os.close(writing)
    read.drain(reading)
    os.close(reading)
    kept = head_and_tail(data, limit)
    assert b"".join(added.pieces) == b"".join(read.pieces) == kept
    assert added.is_truncated == read.is_truncated == (len(data) > limit)
    if len(data) > limit:
        head, tail = data[: limit // 2], data[len(data) - (limit - limit // 2) :]
        assert kept.startswith(head) and kept.endswith(tail)
        assert f"... {len(data) - limit} bytes left out ...".encode() in kept.splitlines()


FLOOD = "import sys\nfor i in range(100_000):\n    print(i, file=sys.{})\nprint('the end', file=sys.{})"


async def test_a_flood_keeps_its_first_and_its_last_lines(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, output_bytes=2_000)
    session = await sandbox.open_session("python", limits=limits)
    for name in ("stdout", "stderr"):
        code = FLOOD.format(name, name)
        runs = [await sandbox.run(Command(code=code), limits=limits, fresh=fresh) for fresh in (False, True)]
        for result in (*runs, await session.run(code, wall_s=20.0)):
            kept = getattr(result, name)
            assert kept.startswith("0\n1\n2\n") and kept.endswith("99999\nthe end\n")
            assert kept.count("bytes left out ...\n") == 1 and 2_000 < len(kept) < 2_100
            assert getattr(result, f"{name}_truncated")
    assert await python(sandbox, "print(1)") == "1\n"


IMPORT = ["python", "-c", "import sys; sys.path.insert(0, '.'); import mod; print(mod.X)"]


async def test_an_edit_of_the_same_size_in_the_same_second_is_seen(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("bash", limits=LIMITS)
    for number in range(4):
        await sandbox.put_tree({"mod.py": f"X = {number}\n".encode()})
        touch = Command(argv=["sh", "-c", "touch -d @1000000000 mod.py"])  # the clock of the file stands still
        assert (await sandbox.run(touch, limits=LIMITS)).ok
        assert await python(sandbox, "import mod\nprint(mod.X)") == f"{number}\n"
        assert (await sandbox.run(Command(argv=IMPORT), limits=LIMITS)).stdout == f"{number}\n"
        line = "python -c 'import sys; sys.path.insert(0, \".\"); import mod; print(mod.X)'"
        assert (await session.run(line, wall_s=10.0)).stdout == f"{number}\n"
    assert set((await sandbox.take_tree(max_bytes=1000, max_files=10)).files) == {"mod.py"}
