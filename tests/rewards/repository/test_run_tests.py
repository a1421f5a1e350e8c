"""Results of tests in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from repository.small_package import BASE, F2P, GOLD, HIDDEN, P2P

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading.repo_task import write_tree
from verl_agentic.swe.grading.run_tests import TestRun, run_repository_tests

OUTCOMES = b"""
import unittest

import pytest


@pytest.fixture
def broken():
    raise KeyError("no")


@pytest.fixture
def breaks_later():
    yield 1
    raise KeyError("later")


def test_passes(): pass
def test_fails(): assert 1 == 2
def test_skips(): pytest.skip("no")
def test_xfails(): pytest.xfail("no")
@pytest.mark.xfail
def test_xpasses(): pass
def test_setup(broken): pass
def test_teardown(breaks_later): pass
async def test_async(): assert 1 == 2


class Case(unittest.TestCase):
    @unittest.expectedFailure
    def test_expected(self): assert 1 == 2
    def test_subtests(self):
        for number in (1, 2):
            with self.subTest(number=number):
                self.assertEqual(number, 1)
"""
EXPECTED = {
    "test_passes": "passed",
    "test_fails": "failed",
    "test_skips": "skipped",
    "test_xfails": "xfailed",
    "test_xpasses": "xpassed",
    "test_setup": "error",
    "test_teardown": "error",
    "test_async": "failed",
    "Case::test_expected": "xfailed",
    "Case::test_subtests": "failed",
}


async def run(backend: Backend, site: Path, extra: dict[str, bytes], *, test_s: float = 20.0) -> TestRun:
    """Runs the tests of additional files on the fixed package."""
    tree = {path: content for path, content in {**BASE, **HIDDEN, **GOLD, **extra}.items() if content is not None}
    return await run_repository_tests(backend, tree=tree, site=site, targets=sorted(extra), test_s=test_s)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("change", "f2p"), [({}, "failed"), (GOLD, "passed")])
async def test_the_bug_fails_its_tests_and_the_fix_passes_them(
    backend: Backend, site: Path, change: dict[str, bytes], f2p: str
) -> None:
    run = await run_repository_tests(backend, tree={**BASE, **HIDDEN, **change}, site=site, targets=sorted(HIDDEN))
    assert run.ended and not run.tampered
    assert run.outcomes == {**dict.fromkeys(F2P, f2p), **dict.fromkeys(P2P, "passed")}


@pytest.mark.slow
async def test_every_kind_of_end_has_its_outcome(backend: Backend, site: Path) -> None:
    found = await run(backend, site, {"tests/test_kinds.py": OUTCOMES})
    assert found.ended
    assert found.outcomes == {f"tests/test_kinds.py::{test}": outcome for test, outcome in EXPECTED.items()}
    assert "assert 1 == 2" in found.why["tests/test_kinds.py::test_fails"]


@pytest.mark.slow
async def test_a_hanging_test_keeps_the_other_results(backend: Backend, site: Path) -> None:
    hangs = b"""
import time
def test_a(): pass
def test_hangs():
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass
def test_z(): pass
"""
    found = await run(backend, site, {"tests/test_hangs.py": hangs}, test_s=1.0)
    assert found.ended
    assert [test.split("::")[1] for test in sorted(found.passed)] == ["test_a", "test_z"]
    assert found.why["tests/test_hangs.py::test_hangs"] == "timeout: the test took more than 1 s"


@pytest.mark.slow
async def test_a_file_that_cannot_be_imported_is_an_error_and_the_others_run(backend: Backend, site: Path) -> None:
    extra = {"tests/test_bad.py": b"import no_such_module\n", "tests/test_good.py": b"def test_good(): pass\n"}
    found = await run(backend, site, extra)
    assert found.outcomes == {"tests/test_bad.py": "error", "tests/test_good.py::test_good": "passed"}


async def test_nothing_counts_without_the_announced_end(backend: Backend, site: Path) -> None:
    found = await run(
        backend, site, {"tests/test_end.py": b"import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n"}
    )
    assert not found.ended and not found.passed


async def test_a_run_without_pytest_is_a_failure_of_the_grader(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match="pytest"):
        await run(backend, tmp_path, {"tests/test_a.py": b"def test_a(): pass\n"})


async def test_a_site_must_not_have_the_package(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "smallkit.py").touch()
    with pytest.raises(DataError, match="smallkit"):
        await run(backend, tmp_path, {"tests/test_a.py": b"def test_a(): pass\n"})


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "change",
    [
        {"smallkit/units.py": None, "smallkit/units.py/more.txt": b""},
        {"docs/a.txt": None, "docs/b/c.txt": None, "docs": b"text\n"},
    ],
)
async def test_a_file_may_take_the_place_of_a_folder_and_the_other_way_round(
    change: dict[str, bytes | None], backend: Backend, site: Path, tmp_path: Path
) -> None:
    test = b"import os\n\n\ndef test_kind():\n    assert os.path.isdir('smallkit/units.py') != os.path.isfile('docs')\n"
    tree = {**BASE, "docs/a.txt": b"", "docs/b/c.txt": b"", "tests/test_kind.py": test}
    write_tree(tree, tmp_path)
    run = await run_repository_tests(backend, tree=tmp_path, changed=change, site=site, targets=["tests/test_kind.py"])
    assert run.passed == {"tests/test_kind.py::test_kind"}
