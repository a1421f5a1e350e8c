"""Trees and images that sandboxes begin with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from boxes import LIMITS, python

from verl_agentic.base.errors import ConfigError, DataError, SandboxUnavailableError
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Backend, Command, Limits, Sandbox, Tree
from verl_agentic.sandbox.pools.backends import ELSEWHERE
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

MAX: dict[str, Any] = {"max_bytes": 10_000_000, "max_files": 1000}
REPO = {"repo/pkg/a.py": b"A = 1\n", "repo/pkg/b.py": b"B = 1\n", "repo/tests/test_a.py": b"", "repo/run.sh": b"true\n"}
SITE = {"site/dep.py": b"D = 1\n"}


@pytest.fixture
def backend(each_backend: Backend) -> Backend:
    return each_backend


@pytest.fixture
def trees(tmp_path: Path) -> list[Tree]:
    for path, data in (REPO | SITE).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "repo/run.sh").chmod(0o755)
    (tmp_path / "repo/pkg/a.py").chmod(0o444)  # a writable tree is writable all the same
    return [Tree(source=tmp_path / "repo", at="repo"), Tree(source=tmp_path / "site", at="lib/site", read_only=True)]


async def _taken(sandbox: Sandbox) -> dict[str, bytes]:
    taken = await sandbox.take_tree(**MAX)
    assert taken.skipped == {}
    return dict(taken.files)


BEGIN = {**REPO, "lib/site/dep.py": b"D = 1\n"}
EDIT = """
import os, shutil, sys
sys.path[:0] = ["repo", "lib/site"]
import dep, pkg.a
assert (pkg.a.A, dep.D) == (1, 1)
open('repo/pkg/a.py', 'a').write('A = 2\\n')
os.rename('repo/pkg/b.py', 'repo/pkg/c.py')
shutil.rmtree('repo/tests')
os.makedirs('repo/tests/new')
open('repo/tests/new/t.py', 'w').close()
shutil.move('repo/pkg', 'repo/moved')
open('top', 'w').close()
"""
EDITED = {
    "repo/moved/a.py": b"A = 1\nA = 2\n", "repo/moved/c.py": b"B = 1\n", "repo/tests/new/t.py": b"",
    "repo/run.sh": b"true\n", "lib/site/dep.py": b"D = 1\n", "top": b"",
}  # fmt: skip


async def test_a_sandbox_begins_with_its_trees_and_a_reset_restores_them(backend: Backend, trees: list[Tree]) -> None:
    sandbox = await backend.create(trees=trees)
    try:
        assert await _taken(sandbox) == BEGIN
        assert (await sandbox.take_tree(**MAX)).modes["repo/run.sh"] == 0o755
        for _ in range(3):
            await python(sandbox, EDIT)
            assert await _taken(sandbox) == EDITED
            await sandbox.reset()
            assert await _taken(sandbox) == BEGIN
        await python(sandbox, EDIT)
        number = await sandbox.snapshot()
        await sandbox.reset()
        assert await _taken(sandbox) == BEGIN
        await sandbox.reset(number)
        assert await _taken(sandbox) == EDITED
        await sandbox.put_tree({"pkg/a.py": b"A = 3\n"}, at="repo")
        assert (await _taken(sandbox))["repo/pkg/a.py"] == b"A = 3\n"
        look = "import os\nprint(sorted(os.listdir('.')))"
        assert await python(sandbox, look, fresh=True) == "[]\n"
        written = Command(code="open('x', 'w').write('1')", outputs=["x"])
        assert (await sandbox.run(written, limits=LIMITS, fresh=True)).files == {"x": b"1"}
        assert await python(sandbox, look) == "['lib', 'repo', 'top']\n"
    finally:
        await sandbox.close()
    assert (trees[0].source / "pkg/a.py").read_bytes() == b"A = 1\n"


CHANGE = """
import os, shutil
for change in (
    lambda: open('lib/site/dep.py', 'w').write('D = 2'), lambda: open('lib/site/new.py', 'w').write('N = 2'),
    lambda: os.chmod('lib/site/dep.py', 0o777), lambda: os.chmod('lib/site', 0o777),
    lambda: os.unlink('lib/site/dep.py'),
    lambda: os.rename('lib/site', 'lib/old'), lambda: os.rmdir('lib/site'),
    lambda: open('lib/site/dep.py', 'w').write('D = 2'),
):
    try:
        change()
    except OSError:
        pass
os.rename('lib', 'elsewhere')
os.symlink('/usr', 'lib')
"""


async def test_a_read_only_tree_cannot_be_changed_in_namespaces(backend: Backend, trees: list[Tree]) -> None:
    if backend.name != "namespaces":
        pytest.skip("other backends put a copy without write bits there")
    sandbox = await backend.create(trees=trees)
    try:
        await python(sandbox, CHANGE)
        taken = await sandbox.take_tree("elsewhere", **MAX)
        assert taken.files == {"site/dep.py": b"D = 1\n"}
        number = await sandbox.snapshot()
        await sandbox.reset(number)  # what code left at the place of the tree is no failure of the sandbox
        assert await python(sandbox, "import os\nprint(os.readlink('lib'))") == "/usr\n"
        await sandbox.reset()
        assert await _taken(sandbox) == BEGIN
        assert await python(sandbox, "import os\nprint(os.listdir('/stage'))") == "[]\n"
    finally:
        await sandbox.close()


async def test_sandboxes_with_the_same_tree_do_not_see_each_others_changes(backend: Backend, trees: list[Tree]) -> None:
    pool = SandboxPool(backend, PoolConfig(size=3, warm=0))

    async def change(number: int) -> bytes:
        async with pool.lease(trees=trees) as sandbox:
            code = f"import time\nopen('repo/pkg/a.py', 'a').write('A = {number}')\ntime.sleep(0.2)"
            await python(sandbox, code)
            return (await _taken(sandbox))["repo/pkg/a.py"]

    changed = await asyncio.gather(*(change(number) for number in range(5)))
    assert changed == [b"A = 1\nA = %d" % number for number in range(5)]
    async with pool.lease() as plain:
        assert await _taken(plain) == {}


async def test_trees_that_cannot_work_are_refused(backend: Backend, trees: list[Tree], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder"):
        Tree(source=tmp_path, at="../x")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/l").symlink_to("/etc/passwd")
    for source, problem in ((tmp_path / "links", "'link' for 'l'"), (tmp_path / "missing", "'no folder'")):
        with pytest.raises(ConfigError, match=problem):
            await backend.create(trees=[Tree(source=source, at="x")])
    if backend.name not in ("docker", "daytona", "modal"):
        with pytest.raises(ConfigError, match="images"):
            await backend.create(image="python:3.12")


@pytest.mark.slow
async def test_a_tree_beyond_the_disk_is_an_error_of_the_data(backend: Backend, tmp_path: Path) -> None:
    if backend.name == "local":
        pytest.skip("local does not limit the disk")
    (tmp_path / "big").mkdir()
    for number in range(10):
        (tmp_path / f"big/{number}").write_bytes(bytes(30 << 20))
    with pytest.raises(DataError, match="tree"):
        await backend.create(trees=[Tree(source=tmp_path / "big", at="x")])


async def test_changes_of_a_tree_are_limited_by_the_disk(backend: Backend, trees: list[Tree]) -> None:
    if backend.name in ("local", "landlock", *ELSEWHERE):
        pytest.skip("no limit on the disk, or one that is checked only now and then")
    sandbox = await backend.create(trees=trees)
    try:
        fill = Command(argv=["sh", "-c", "for i in 1 2 3; do head -c 50M /dev/zero > repo/$i; done"])
        result = await sandbox.run(fill, limits=Limits(wall_s=20.0, memory_mb=1024))
        assert "No space left" in result.stderr
        await sandbox.reset()
        assert await _taken(sandbox) == BEGIN
        assert (await sandbox.run(Command(argv=["true"]), limits=LIMITS)).ok
    finally:
        await sandbox.close()


async def test_code_sees_no_tree_of_other_sandboxes_and_a_tree_stays_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verl_agentic.sandbox.boxes.namespaces_backend._MAX_SHARED_BYTES", 3_000)
    backend = NamespaceBackend()
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    sandboxes = []
    try:
        for name in ("a", "b", "c", "a"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "file").write_bytes(name.encode() * 2_000)
            (tmp_path / name / "file").chmod(0o600)
            sandboxes.append(await backend.create(trees=[Tree(source=tmp_path / name, at="site", read_only=True)]))
        look = "import os\nprint(open('site/file').read(1), os.listdir('/trees'), os.listdir('.'))"
        seen = [await python(sandbox, look) for sandbox in sandboxes]
        assert seen == [f"{name} [] ['site']\n" for name in ("a", "b", "c", "a")]
    finally:
        await backend.close()


async def test_a_read_only_tree_of_many_small_files_fits(backend: Backend, tmp_path: Path) -> None:
    for number in range(127):  # each takes a third page
        (tmp_path / f"{number}.py").write_bytes(b"#" * 8_200)
    sandbox = await backend.create(trees=[Tree(source=tmp_path, at="site", read_only=True)])
    try:
        assert (await python(sandbox, "import os\nprint(len(os.listdir('site')))")).strip() == "127"
    finally:
        await sandbox.close()
