"""Components that judge changes of a repository: how alike patches are, what tests say, who may touch tests."""

from __future__ import annotations

import difflib
import json
import random
import time
from typing import Any

import pytest
from samples import sample

from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.graders.code.issue_tests import TestResults
from verl_agentic.graders.code.patch_paths import edited_tests, extract_diff, is_harness, is_test, touched_paths
from verl_agentic.graders.code.patches import (
    FormatError,
    TooLargeError,
    apply_search_replace,
    parse_search_replace,
    patch_similarity,
    similarity,
    unified_diff,
)
from verl_agentic.graders.components.resolved import resolved
from verl_agentic.graders.components.resolved_partial import resolved_partial
from verl_agentic.graders.components.swe_rl import swe_rl
from verl_agentic.rewards.component import ABSTAIN

# vectors.json, V-SWERL
A = "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b"
A_ORACLE = (
    "def add(a: int, b: int) -> int:\n    return a + b\n\ndef subtract(a: float, b: float) -> float:\n    return a - b"
)
A_HALF = "def add(a: int, b: int) -> int:\n    return a + b\n\ndef subtract(a, b):\n    return a - b"
B = "def sort_list(lst):\n    return sorted(lst)"
B_ORACLE = "def sort_list(lst: list[int]) -> list[int]:\n    return sorted(lst)"
DIFF_ORACLE = (
    "@@ -1,5 +1,5 @@\n-def add(a, b):\n+def add(a: int, b: int) -> int:\n     return a + b\n \n"
    "-def subtract(a, b):\n+def subtract(a: float, b: float) -> float:\n     return a - b"
)
OLD = {"a.py": A, "b.py": B}
ORACLE = {"a.py": A_ORACLE, "b.py": B_ORACLE}


def block(path: str, search: str, replace: str) -> str:
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```\n"


def turn(solution: str, thought: str = "Types are missing.") -> str:
    return f"<think>{thought}</think>\n<solution>\n{solution}\n</solution>"


RIGHT = block("a.py", A, A_ORACLE) + block("b.py", B, B_ORACLE)


def swe(text: str, **options: Any) -> Any:
    row = {"code_context": OLD, "oracle_new_content": ORACLE}
    return swe_rl.make(options)(sample(text, ground_truth=row))


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (ORACLE, 1.0),
        ({"a.py": A_ORACLE}, 0.5),  # b_missing
        ({"c.py": "x = 1"}, 0.0),  # wrong_file
        ({"a.py": A}, 0.0),  # nothing changed
    ],
)
def test_similarity_is_the_mean_over_the_files_that_either_changes(predicted: dict[str, str], expected: float) -> None:
    assert patch_similarity(OLD, ORACLE, predicted)[0] == expected


def test_an_extra_file_counts_zero() -> None:
    only_a = {"a.py": A_ORACLE}
    assert patch_similarity(OLD, only_a, {"a.py": A_ORACLE, "b.py": B_ORACLE})[0] == 0.5


def test_half_of_a_patch_is_worth_three_quarters() -> None:
    # V-SWERL, half_of_a: the ratio of the two diffs of a.py is 0.75.
    assert unified_diff(A, A_ORACLE) == DIFF_ORACLE
    value, each = patch_similarity({"a.py": A}, {"a.py": A_ORACLE}, {"a.py": A_HALF})
    assert value == each["a.py"] == 0.75
    expected = difflib.SequenceMatcher(None, unified_diff(A, A_HALF), DIFF_ORACLE, autojunk=False).ratio()
    assert value == expected


def test_diffs_are_those_of_difflib() -> None:
    chooser = random.Random(0)
    for _ in range(200):
        old, new = ([chooser.choice("abcdef") for _ in range(chooser.randrange(30))] for _ in range(2))
        expected = "\n".join([*difflib.unified_diff(old, new, lineterm="")][2:])
        assert unified_diff("\n".join(old), "\n".join(new)) == expected


def test_the_right_blocks_are_worth_one() -> None:
    assert swe(turn(RIGHT)) == 1.0
    assert swe(RIGHT, tags=False) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        RIGHT,
        turn(RIGHT, thought="  "),
        turn(RIGHT) + "<think>again</think>",
        turn(RIGHT) + "</solution>",
        turn("no block"),
        turn(unified_diff(A, A_ORACLE)),
        turn(block("a.py", A, A)),
        turn(block("a.py", "not in the file", "x")),
        turn(block("a.py", "add(a, b):", "add(x, y):")),  # from the middle of a line
        turn(block("c.py", "x", "y")),
        turn(RIGHT.replace("=======", "======")),
        turn(RIGHT.replace(">>>>>>> REPLACE", "")),
    ],
)
def test_what_is_no_patch_is_worth_minus_one(text: str) -> None:
    assert swe(text) == -1.0


def test_blocks_are_read_as_the_original_reads_them() -> None:
    text = f"So:\n{block('a.py', 'one', '')}{block('a.py', 'two', 'three')}{block('b/c.py', '', 'x = 1')}"
    assert parse_search_replace(text) == {"a.py": [("one", ""), ("two", "three")], "b/c.py": [("", "x = 1")]}
    assert apply_search_replace({"a.py": "one\ntwo\none"}, {"a.py": [("one", "1")]}) == {"a.py": "1\ntwo\n1"}
    assert apply_search_replace({}, {"n.py": [("", "x = 1")]}) == {"n.py": "x = 1"}


@pytest.mark.parametrize(
    ("content", "search", "replace", "expected"),
    [
        ("x = 1\nx = 10\n", "x = 1", "x = 2", "x = 2\nx = 10\n"),
        ("x = 1\nx = 1", "x = 1", r"\1", "\\1\n\\1"),
        ("a\nb\na\nbc", "a\nb", "d", "d\na\nbc"),
        ("", "", "new\n", "new\n"),
    ],
)
def test_edits_replace_whole_lines(content: str, search: str, replace: str, expected: str) -> None:
    assert apply_search_replace({"f": content}, {"f": [(search, replace)]}) == {"f": expected}


def test_edits_that_double_a_file_again_and_again_end_soon() -> None:
    edits = {"a.py": [("x", "x\nx")] * 60}
    with pytest.raises(FormatError, match="longer"):
        apply_search_replace({"a.py": "x\n" * 1000}, edits)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "replacement",
    [
        " " * 100_000,
        "\n" * 100_000,
        "".join(chr(97 + n % 26) + "\n" for n in range(100_000)),
        "    return a + b\n" * 9_000,
    ],
    ids=["spaces", "lines", "letters", "repeated"],
)
def test_a_patch_that_is_hard_to_compare_is_scored_soon_and_low(replacement: str) -> None:
    started = time.process_time()
    assert 0.0 <= swe(turn(block("a.py", A, replacement))) < 0.3
    assert time.process_time() - started < 25.0


def test_a_comparison_that_takes_too_long_is_given_up_and_counts_zero() -> None:
    hard = " " * 20_000, " x" * 10_000  # 20,000 * 10,000 pairs of spaces in the first step alone
    with pytest.raises(TooLargeError):
        similarity(*hard)
    oracle = "\n".join(f"{' ' * 30}x{n}" for n in range(90))  # 2,700 spaces
    started = time.process_time()
    assert patch_similarity({}, {"a": oracle}, {"a": "\n".join([" " * 200] * 500)})[0] == 0.0
    many = {str(n): oracle for n in range(5)} | {"z": "right"}
    value, each = patch_similarity({}, {"z": "right", "0": "y"}, many)
    assert each["z"] == 1.0 and 0.0 < value < 0.2
    assert patch_similarity({}, {"a": oracle}, {"a": oracle.replace("x7", "y7")})[0] > 0.9
    assert time.process_time() - started < 25.0


def test_ten_megabytes_of_heads_without_ends_are_read_in_linear_time() -> None:
    started = time.process_time()
    assert parse_search_replace("```\n### a\n<<<<<<< SEARCH\n=======\nx\n" * 250_000) == {}
    assert time.process_time() - started < 10.0


def test_an_oracle_too_large_to_compare_abstains() -> None:
    row = {"code_context": {}, "oracle_new_content": {"a": " " * 50_000}}
    assert swe_rl.make({})(sample(turn(block("a", "", "x")), ground_truth=row)) is ABSTAIN
    assert swe_rl.make({})(sample(turn(RIGHT))) is ABSTAIN


@pytest.mark.parametrize(
    "row",
    [
        "no json",
        {},
        {"code_context": OLD},
        {"code_context": OLD, "oracle_new_content": {"a.py": None}},
        {"code_context": OLD, "oracle_new_content": OLD},
    ],
)
def test_an_oracle_that_is_none_is_an_error_of_the_row(row: Any) -> None:
    with pytest.raises(DataError):
        swe_rl.make({})(sample(turn(RIGHT), ground_truth=row))


def test_the_row_may_be_json_text() -> None:
    row = json.dumps({"code_context": OLD, "oracle_new_content": ORACLE})
    assert swe_rl.make({})(sample(turn(RIGHT), ground_truth=row)) == 1.0


def test_equal_texts_are_equal_however_long() -> None:
    assert similarity(" " * 10**6, " " * 10**6) == 1.0 and similarity("", "x") == 0.0


# vectors.json, V-SWEBENCH
F2P, P2P = {"t1": True, "t2": False}, {"u1": True, "u2": True, "u3": True}


def graded(component: Any = resolved, answer: str = "done", ground_truth: Any = None, **extra: Any) -> Any:
    options = {"part": extra.pop("part")} if "part" in extra else {}
    return component.make(options)(sample(answer, extra=extra, ground_truth=ground_truth))


def test_resolved_needs_all_of_both_kinds() -> None:
    assert graded(f2p=F2P, p2p=P2P) == 0.0
    assert graded(resolved_partial, f2p=F2P, p2p=P2P) == 0.5
    assert graded(resolved_partial, f2p=F2P, p2p=P2P, part="p2p") == 1.0
    mended = {"t1": True, "t2": True}
    assert graded(f2p=mended, p2p=P2P) == 1.0
    assert graded(f2p=mended, p2p={**P2P, "u2": False}) == 0.0
    assert graded(f2p=mended, p2p={}) == 1.0


def test_an_expected_failure_counts_only_where_the_reference_run_has_it_for_that_test() -> None:
    both = {"a": "PASSED", "b": "XFAIL"}
    assert graded(f2p=both, p2p={}) == graded(f2p={"a": "PASSED"}, p2p=both) == 0.0
    row = {"f2p": ["a", "b"], "p2p": [], "reference": {"a": "XFAIL", "b": "PASSED"}}
    assert graded(f2p=both, p2p={}, ground_truth=row) == 0.0  # the expected failure is that of another test
    assert graded(f2p=both, p2p={}, ground_truth={**row, "reference": {"b": "xfail"}}) == 1.0
    assert TestResults.of({"t": "XFAIL"}, {"u": "XFAIL"}).resolved == 0.0
    assert TestResults.of({"t": "XFAIL"}, {"u": "XFAIL"}, reference={"t": "XFAIL", "u": "XFAIL"}).resolved == 1.0


def test_other_statuses_than_passed_are_failures() -> None:
    assert graded(f2p={"a": "PASSED", "b": "passed"}, p2p={}) == 1.0
    for status in ("FAILED", "ERROR", "SKIPPED", "XPASS", "XFAIL", ""):
        assert graded(f2p={"a": "PASSED", "b": status}, p2p={}) == 0.0


def test_a_test_that_did_not_run_has_failed() -> None:
    row = {"FAIL_TO_PASS": json.dumps(["t1", "t2"]), "PASS_TO_PASS": json.dumps(["u1"])}
    assert graded(f2p={"t1": True, "t2": True}, p2p={"u1": True}, ground_truth=row) == 1.0
    assert graded(f2p={"t1": True}, p2p={"u1": True}, ground_truth=row) == 0.0
    assert graded(f2p={"t1": True, "t2": True}, p2p={}, ground_truth=json.dumps(row)) == 0.0


def counted(answer: str = "done", ground_truth: Any = None, **info: float) -> float:
    counts = {"f2p_passed": 2, "f2p_total": 2, "p2p_passed": 3, "p2p_total": 3, **info}
    return resolved.make({})(sample(answer, outcome=0.0, info=counts, ground_truth=ground_truth))


def test_the_environment_may_report_counts() -> None:
    assert counted() == 1.0
    assert counted(f2p_passed=1) == counted(p2p_passed=2) == 0.0
    assert counted(patch_applied=0) == counted(edits_tests=1) == 0.0
    assert counted(ground_truth={"f2p": ["a", "b", "c"], "p2p": []}) == 0.0  # one did not run


def test_results_of_an_environment_are_those_of_the_tests_that_the_row_names() -> None:
    row = {"f2p": ["a", "b"], "p2p": ["c"]}
    by_name = {"f2p/a": 1.0, "f2p/b": 1.0, "p2p/c": 1.0, "p2p/another": 0.0}

    def named(**changed: float) -> float:
        info = {key: value for key, value in {**by_name, **changed}.items() if value >= 0}
        return resolved.make({})(sample("done", outcome=0.0, info=info, ground_truth=row))

    assert named() == 1.0
    assert named(**{"f2p/b": 0.0}) == named(**{"p2p/c": 0.0}) == 0.0
    assert named(**{"f2p/b": -1.0, "f2p/easy": 1.0}) == 0.0  # another test is no substitute
    with pytest.raises(ScoringError, match="the row names, 1"):  # two of two passed: which?
        counted(ground_truth={"f2p": ["a"], "p2p": []})


def test_no_results_are_an_error_and_no_failure() -> None:
    with pytest.raises(ScoringError, match="f2p_passed"):
        graded()
    with pytest.raises(ScoringError, match="p2p_passed"):
        resolved.make({})(sample("x", outcome=1.0, info={"f2p_passed": 1, "f2p_total": 1}))


@pytest.mark.parametrize("extra", [{"f2p": {}, "p2p": P2P}, {"f2p": ["t1"]}, {"f2p": F2P, "p2p": "all"}])
def test_results_that_are_none_are_an_error_of_the_row(extra: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        graded(**extra)
    with pytest.raises(DataError):
        TestResults(f2p_passed=3, f2p_total=2, p2p_passed=0, p2p_total=0)
    with pytest.raises(DataError):
        graded(f2p=F2P, ground_truth={"f2p": "[broken"})


def diff(path: str, old: str | None = None) -> str:
    return f"--- a/{old or path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    "patch",
    [
        diff("tests/test_a.py"),
        diff("pkg/tests/data/expected.json"),
        diff("test_a.py"),
        diff("pkg/a_test.go"),
        diff("conftest.py"),
        diff("pkg/conftest.py", "dev/null"),
        diff("pytest.ini"),
        diff("sitecustomize.py"),
        *map(
            diff,
            (
                "tox.ini",
                "setup.cfg",
                "pyproject.toml",
                ".pytest.ini",
                "sub/pytest.ini",
                "pytest.py",
                "pytest/__init__.py",
                "_pytest/runner.py",
                "src/_pytest/runner.py",
                "unittest/case.py",
                "usercustomize.py",
                "Makefile",
                "build/rules.mk",
                "evil.pth",
                "noxfile.py",
                "setup.py",
                "json.py",
                "src/os.py",
                "random/__init__.py",
                "pkg/core.so",
                "pkg/__pycache__/core.cpython-311.pyc",
                "test/data.json",
                "tests",
                "package.json",
            ),
        ),
        "Index: tox.ini\n" + diff("src/a.py"),
        diff("src/a.py") + diff("src/./x/../../tests/test_a.py"),
        diff("src/a.py", "tests/test_a.py"),
        "diff --git a/tests/test_a.py b/src/b.py\nrename from tests/test_a.py\nrename to src/b.py\n",
        "diff --git a/tests/test_a.py b/tests/test_a.py\nold mode 100644\nnew mode 100755\n",
        "diff --git a/tests/t.bin b/tests/t.bin\nGIT binary patch\nliteral 0\n",
        '--- "a/te\\163ts/t.py"\n+++ "b/te\\163ts/t.py"\n@@ -1 +1 @@\n-x\n+y\n',
        "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,100 +1,100 @@\n-x\n+y\n" + diff("tests/test_a.py"),
        diff("checks/hidden.py"),
    ],
)
def test_a_patch_that_touches_tests_is_worth_nothing(patch: str) -> None:
    passed = {"f2p": {"t": True}, "p2p": {}, "test_patch": diff("checks/hidden.py")}
    assert graded(**passed, model_patch=diff("src/a.py")) == 1.0
    assert graded(**passed, model_patch=patch) == 0.0
    assert graded(resolved_partial, **passed, model_patch=patch) == 0.0
    assert graded(answer=f"My patch:\n```diff\n{patch}```", **passed) == 0.0
    assert counted(answer=patch.replace("checks/hidden", "tests/hidden")) == 0.0


def test_an_answer_that_only_quotes_a_diff_of_tests_is_not_refused() -> None:
    quote = f"I changed `src/a.py`. The test that failed came with:\n```diff\n{diff('tests/test_a.py')}```\nIt passes."
    assert counted(answer=quote) == 1.0
    assert counted(answer=quote, patch_applied=1.0) == 0.0  # the environment applied a patch: it was in the answer
    assert graded(answer=quote, f2p={"t": True}, p2p={}, model_patch=diff("src/a.py")) == 1.0


def test_a_fence_around_a_diff_leaves_it_a_diff() -> None:
    for path in ("tests/test_a.py", "conftest.py", "setup.cfg", "tox.ini"):
        edits = diff(path)
        for answer in (edits, f"```diff\n{edits}```", f"~~~\n{edits}~~~\n", f"<patch>\n```\n{edits}```\n</patch>",
                       f"```diff\n{edits}```\n```diff\n{diff('src/a.py')}```"):  # fmt: skip
            assert counted(answer=answer) == 0.0, answer
    assert counted(answer=f"```diff\n{diff('src/a.py')}```") == 1.0


def test_what_the_reference_patch_changes_may_be_changed() -> None:
    passed = {"f2p": {"t": True}, "p2p": {}, "patch": diff("src/_pytest/runner.py") + diff("setup.cfg")}
    for path in ("src/_pytest/runner.py", "src/_pytest/main.py", "setup.cfg"):
        assert graded(**passed, model_patch=diff(path)) == 1.0
    for path in ("tox.ini", "src/pytest/__init__.py", "src/_pytest/test_x.py", "pytest.py"):
        assert graded(**passed, model_patch=diff(path)) == 0.0


def test_an_episode_without_a_patch_has_resolved_nothing() -> None:
    assert graded(f2p={"t": True}, p2p={}, model_patch="") == 0.0


def test_names_that_only_look_like_tests_are_none() -> None:
    for path in (
        *("src/contest.py", "src/testing.py", "django/test/client.py", "latest.py", "attest/core.py"),
        *("pkg/json.py", "src/pkg/types.py", "docs/site/index.md", "pkg/makefile_parser.py", "calendar/index.html"),
    ):
        assert not is_test(path) and not is_harness(path)
    assert edited_tests(touched_paths(diff("src/latest.py"))) == []


def test_the_paths_of_a_diff_are_those_of_its_headers() -> None:
    text = diff("new name.py", "old.py") + "diff --git a/x y.py b/x y.py\n--- /dev/null\n+++ b/x y.py\t2020-01-01\n"
    assert touched_paths(text) == {"new name.py", "old.py", "x y.py"}


def test_a_diff_is_found_in_an_answer() -> None:
    assert extract_diff(f"First\n```diff\n{diff('a.py')}```\nthen\n```\n{diff('b.py')}```") == diff("b.py")
    assert extract_diff(f"Here:\n{diff('a.py')}") == diff("a.py")
    assert extract_diff("no diff") is extract_diff("--- a\n+++ b\n") is None


def test_only_known_parts_of_the_tests_can_be_asked_for() -> None:
    with pytest.raises(ConfigError):
        resolved_partial.make({"part": "all"})
    assert resolved.kind == "outcome" and resolved_partial.kind == "shaping"
