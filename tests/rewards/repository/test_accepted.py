"""Files of a change that enter the graded tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository.small_package import BASE, GOLD, HIDDEN

from verl_agentic.graders.code.patch_paths import is_harness, is_test
from verl_agentic.swe.grading.accepted import MAX_FILE_BYTES, accept, changes

REFUSED = {
    "tests/test_slugs.py": "test",
    "tests/__init__.py": "test",
    "tests/data/case.json": "test",
    "smallkit/test_more.py": "test",
    "smallkit/testdata/expected.json": "test",
    "conftest.py": "configuration",
    "smallkit/conftest.py": "configuration",
    "pytest.ini": "configuration",
    "pyproject.toml": "configuration",
    "setup.cfg": "configuration",
    "sitecustomize.py": "configuration",
    "smallkit/evil.pth": "configuration",
    "smallkit/slugs.so": "configuration",
    "evil.egg-info/entry_points.txt": "configuration",
    "pytest.py": "configuration",
    "_pytest/runner.py": "configuration",
    "argparse.py": "configuration",
    "src/json/__init__.py": "configuration",
    "packaging/version.py": "shadows",
    "../outside.py": "leaves",
    "/etc/passwd": "leaves",
    "smallkit//slugs.py": "leaves",
    "smallkit/./slugs.py": "leaves",
    "": "leaves",
    "smallkit\\slugs.py": "control",
    "smallkit/a\nb.py": "control",
    "smallkit/a\u202eb.py": "control",
    ".git/hooks/pre-commit": "git",
    "smallkit/.GIT/config": "git",
    "Tests/test_slugs.py": "only in case",
    "Conftest.py": "configuration",
    "SmallKit/slugs.py": "only in case",
    "tests\uff0ftest_slugs.py": "only in case",
    "\uff54ests/test_x.py": "test",
    "con\uff46test.py": "configuration",
    "te\u017fts/test_slugs.py": "only in case",
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_is_refused_with_a_reason(path: str) -> None:
    found = accept(BASE, {path: b"x = 1\n"}, protected=HIDDEN, site_modules={"packaging"})
    assert not found.files
    assert REFUSED[path] in found.refused[path]


def test_the_fix_new_modules_data_and_deleted_sources_are_accepted() -> None:
    change = {**GOLD, "smallkit/more.py": b"", "smallkit/data/names.json": b"[]", "smallkit/units.py": None}
    assert accept(BASE, change, protected=HIDDEN).files == change


def test_unchanged_files_are_ignored() -> None:
    found = accept(BASE, changes(BASE, dict(BASE)), protected=HIDDEN)
    assert not found.files and not found.refused


def test_a_link_in_place_of_a_source_does_not_delete_the_source() -> None:
    final = {path: content for path, content in BASE.items() if path != "smallkit/units.py"}
    found = accept(BASE, changes(BASE, final), skipped={"smallkit/units.py": "link"})
    assert not found.files
    assert found.refused == {"smallkit/units.py": "link"}


def test_large_files_are_refused() -> None:
    found = accept(BASE, {"smallkit/big.py": b"#" * (MAX_FILE_BYTES + 1), "smallkit/small.py": b""})
    assert list(found.files) == ["smallkit/small.py"]
    assert found.refused == {"smallkit/big.py": "too large"}


def test_configuration_of_the_reference_patch_is_accepted_but_no_test_and_no_neighbour() -> None:
    change = {"smallkit/setup.cfg": b"", "smallkit/conftest.py": b"", "tests/test_new.py": b""}
    found = accept(BASE, change, allowed=["smallkit/setup.cfg", "smallkit/slugs.py", "tests/test_new.py"])
    assert list(found.files) == ["smallkit/setup.cfg"]


def test_suspicious_words_count_only_in_added_lines() -> None:
    base = {"a.py": b"import ctypes\n"}
    assert accept(base, {"a.py": b"import ctypes\nx = 1\n"}).flags == ()
    assert accept(base, {"a.py": b"import ctypes\nimport sys; sys.modules\n"}).flags == ("a.py: sys.modules",)


NAMES = st.text(st.sampled_from("aTest_.py/cnf\uff54\u017f \\"), max_size=16) | st.sampled_from(sorted(REFUSED))


@given(st.dictionaries(NAMES, st.binary(max_size=8) | st.none(), max_size=6))
def test_every_change_is_accepted_refused_or_equal_to_the_base_and_no_test_enters(
    change: dict[str, bytes | None],
) -> None:
    found = accept(BASE, change, protected=HIDDEN)
    assert not set(found.files) & set(found.refused)
    for path, content in change.items():
        assert path in found.files or path in found.refused or BASE.get(path) == content
    assert not any(is_test(path) or is_harness(path) or path in HIDDEN for path in found.files)


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"smallkit": b""}, {"smallkit": "is a folder of the tree"}),
        ({"smallkit/slugs.py/more.py": b""}, {"smallkit/slugs.py/more.py": "lies below a file"}),
        ({"a": b"", "a/b.py": b""}, {"a": "is a folder of the tree", "a/b.py": "lies below a file"}),
        ({"smallkit/slugs.py": None, "smallkit/slugs.py/more.py": b""}, {}),
    ],
)
def test_files_that_no_tree_can_hold_together_are_refused(
    changed: dict[str, bytes | None], refused: dict[str, str]
) -> None:
    found = accept(BASE, changed, protected=HIDDEN)
    assert found.refused == refused
    assert set(found.files) == set(changed) - set(refused)


def test_a_folder_that_became_a_file_is_refused_if_a_file_of_it_is_kept() -> None:
    base = {"kit/a.py": b"", "kit/conftest.py": b""}
    found = accept(base, {"kit/a.py": None, "kit/conftest.py": None, "kit": b""})
    assert found.files == {"kit/a.py": None} and set(found.refused) == {"kit", "kit/conftest.py"}
