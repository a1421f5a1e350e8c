"""`put_tree` and `take_tree` in every backend that keeps files; code in the sandbox tries to mislead them."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

import pytest
from boxes import LIMITS, python
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.sandbox.interface import Backend, Command, Limits, Sandbox

MAX: dict[str, Any] = {"max_bytes": 10_000_000, "max_files": 1000}
_NAMES = st.sampled_from(["a", "b", "src", "test_x.py", "ä", "with space", "x" * 100, ".hidden", "new\nline"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)
_TREES = st.dictionaries(_PATHS, st.tuples(st.binary(max_size=300), st.sampled_from([0o644, 0o755])), max_size=12)


@pytest.fixture
def backend(each_backend: Backend) -> Backend:
    return each_backend


def _without_clashes(tree: dict[str, Any]) -> dict[str, Any]:
    """Drops files at whose place another file needs a folder."""
    return {path: entry for path, entry in tree.items() if not any(other.startswith(f"{path}/") for other in tree)}


@settings(max_examples=20)
@given(tree=_TREES)
async def test_a_tree_comes_back_as_it_went_in(sandbox: Sandbox, tree: dict[str, tuple[bytes, int]]) -> None:
    tree = _without_clashes(tree)
    files = {path: data for path, (data, _) in tree.items()}
    modes = {path: mode for path, (_, mode) in tree.items()}
    await sandbox.reset()
    for at in (".", "deep/down"):
        await sandbox.put_tree(files, at=at, modes=modes)
        taken = await sandbox.take_tree("deep" if at != "." else ".", **MAX)
        prefix = "" if at == "." else "down/"
        assert taken.files == {prefix + path: data for path, data in files.items()}
        assert taken.modes == {prefix + path: mode for path, mode in modes.items()}
        missing = {} if tree or at == "." else {".": "no folder"}
        assert taken.skipped == missing
        await sandbox.reset()


async def test_code_owns_what_was_put_and_runs_it(sandbox: Sandbox) -> None:
    script = b"#!/bin/sh\necho ran > out\n"
    await sandbox.put_tree({"pkg/a.py": b"X = 1\n", "go": script}, modes={"go": 0o755})
    code = "import pkg.a, subprocess\nopen('pkg/a.py', 'a').write('Y = 2\\n')\nsubprocess.run(['./go'], check=True)"
    await python(sandbox, code)
    await sandbox.put_tree({"go": b"new"})
    taken = await sandbox.take_tree(**MAX)
    files = {path: data for path, data in taken.files.items() if "__pycache__" not in path}
    assert files == {"pkg/a.py": b"X = 1\nY = 2\n", "out": b"ran\n", "go": b"new"}
    assert taken.modes["go"] == 0o644


TRAPS = """
import os, socket
os.mkdir('d')
open('d/ok', 'w').write('fine')
os.symlink('/etc/passwd', 'd/file_link')
os.symlink('/', 'd/folder_link')
os.symlink('.', 'd/loop')
def try_to(name, make):
    try:
        make()
        print(name)
    except OSError:
        pass  # the backend's filter refuses it
try_to('pipe', lambda: os.mkfifo('d/pipe'))
try_to('sock', lambda: socket.socket(socket.AF_UNIX).bind('d/sock'))
with open('d/huge', 'w') as file:
    os.truncate(file.fileno(), 60 << 20)
with open('d/hole', 'w') as file:
    os.truncate(file.fileno(), 3 << 20)
open(b'd/\\xff\\xfe', 'w').write('x')
os.chdir('d')
for _ in range(100):
    os.mkdir('n')
    os.chdir('n')
open('bottom', 'w').write('x')
"""


async def test_only_regular_files_are_read_and_the_rest_is_named(sandbox: Sandbox) -> None:
    specials = (await python(sandbox, TRAPS)).split()
    taken = await sandbox.take_tree("d", max_bytes=10_000_000, max_files=1000)
    assert taken.files == {"ok": b"fine", "hole": bytes(3 << 20)}
    assert taken.skipped == {
        "file_link": "link",
        "folder_link": "link",
        "loop": "link",
        **dict.fromkeys(specials, "special"),
        "huge": "too large",
        "\\xff\\xfe": "not UTF-8",
        "/".join(["n"] * 65): "too deep",
    }
    assert await python(sandbox, "print(1)") == "1\n"


async def test_files_and_folders_without_permission_are_read_or_named(sandbox: Sandbox) -> None:
    await sandbox.put_tree({"a/b": b"1", "c": b"2"})
    await sandbox.run(Command(argv=["sh", "-c", "chmod 0 a c; true"]), limits=LIMITS)
    taken = await sandbox.take_tree(**MAX)
    seen = {**taken.files, **taken.skipped}
    assert seen["c"] in (b"2", "unreadable") and (seen.get("a") == "unreadable" or seen["a/b"] == b"1")


async def test_a_folder_that_is_a_link_or_missing_gives_nothing(sandbox: Sandbox) -> None:
    await python(sandbox, "import os\nos.symlink('/usr', 'usr')\nopen('file', 'w').close()")
    for at in ("usr", "usr/lib", "file", "missing/x"):
        taken = await sandbox.take_tree(at, **MAX)
        assert (taken.files, taken.skipped) == ({}, {".": "no folder"})


async def test_bytes_and_entries_are_bounded(sandbox: Sandbox) -> None:
    await sandbox.put_tree({f"f{number:03}": b"x" * 100 for number in range(200)})
    taken = await sandbox.take_tree(max_bytes=1_000, max_files=300)
    assert len(taken.files) == 10 and set(taken.skipped.values()) == {"too large"} and len(taken.skipped) == 190
    taken = await sandbox.take_tree(max_bytes=100_000, max_files=50)
    assert len(taken.files) == 50 and taken.skipped == {".": "too many"}
    await python(sandbox, "import os\nfor i in range(500):\n    os.makedirs(f'd/{i}')")
    taken = await sandbox.take_tree("d", max_bytes=100_000, max_files=400)
    assert (taken.files, taken.skipped) == ({}, {".": "too many"})


async def test_what_is_in_the_way_is_an_error_of_the_data(sandbox: Sandbox) -> None:
    await python(sandbox, "import os\nos.symlink('/tmp', 'link')\nos.mkdir('folder')\nopen('file', 'w').close()")
    name = uuid.uuid4().hex  # of no file of the machine's
    for path in (f"link/{name}", "folder", "file/x"):
        with pytest.raises(DataError, match="tree"):
            await sandbox.put_tree({path: b"1"})
    await python(sandbox, f"import os\nassert not os.path.exists('/tmp/{name}')\nos.symlink('file', 'other')")
    await sandbox.put_tree({"other": b"2"})  # replaces the link, not its target
    taken = await sandbox.take_tree(**MAX)
    assert taken.files["other"] == b"2" and taken.files["file"] == b""


async def test_arguments_that_cannot_work_are_refused(sandbox: Sandbox) -> None:
    for path in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(ConfigError, match="folder"):
            await sandbox.put_tree({path: b""})
        with pytest.raises(ConfigError, match="folder"):
            await sandbox.take_tree(path, **MAX)
    with pytest.raises(ConfigError, match="modes"):
        await sandbox.put_tree({"a": b""}, modes={"b": 0o755})
    wrong: list[dict[str, Any]] = [
        {"max_bytes": 0, "max_files": 1},
        {"max_bytes": 1, "max_files": 0},
        {**MAX, "max_bytes": 1 << 40},
    ]
    for limits in wrong:
        with pytest.raises(ConfigError, match="take_tree"):
            await sandbox.take_tree(**limits)


CHANGES = """
import os, threading
def change():
    while True:
        for step in (
            lambda: os.rename('t/d', 't/old'), lambda: os.symlink('/usr', 't/d'), lambda: os.unlink('t/d'),
            lambda: os.rename('t/old', 't/d'), lambda: os.unlink('t/d/f'), lambda: os.symlink('/etc/passwd', 't/d/f'),
            lambda: os.unlink('t/d/f'), lambda: os.mkfifo('t/d/f'), lambda: os.unlink('t/d/f'),
            lambda: open('t/d/f', 'w').write('mine'), lambda: os.truncate('t/d/f', 50 << 20),
        ):
            try:
                step()
            except OSError:
                pass
os.makedirs('t/d')
threading.Thread(target=change, daemon=True).start()
"""


async def test_a_tree_that_changes_meanwhile_gives_nothing_from_outside(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=Limits(wall_s=20.0))
    assert (await session.run(CHANGES, wall_s=10.0)).ok
    deadline, seen = time.monotonic() + 1.5, set()
    while time.monotonic() < deadline:
        taken = await sandbox.take_tree(max_bytes=10_000, max_files=100)
        seen |= {*taken.files.values(), *taken.skipped.values()}
        assert set(taken.files) <= {"t/d/f", "t/old/f"}
    assert seen <= {b"", b"mine", "link", "special", "too large", "unreadable", "too many"}
    assert await python(sandbox, "print(1)") == "1\n"


async def test_put_tree_works_while_a_session_fights_it(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=Limits(wall_s=20.0, processes=30))
    await session.run(CHANGES, wall_s=10.0)
    for number in range(20):
        try:
            await sandbox.put_tree({"t/d/f": b"theirs", f"own/{number}": os.urandom(1000)})
        except DataError:
            continue
    assert await python(sandbox, "import os\nprint(os.path.exists('/etc/passwd.new'))") == "False\n"
    taken = await sandbox.take_tree("own", **MAX)
    assert set(map(len, taken.files.values())) <= {1000}
