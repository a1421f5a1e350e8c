"""Runners of other languages: reports are read as they are, sample tasks hold, and forged reports do not count."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from verl_agentic.base.errors import SandboxUnavailableError, ScoringError
from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.swe.check_tasks import task_checks
from verl_agentic.swe.grading.grade import GradeReport, grade
from verl_agentic.swe.grading.poisoning.source_poison import judged_tests, poison_sources, unfound_tests
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.report_runs import run_reported_tests
from verl_agentic.swe.grading.runners.cargo import CARGO, read_results
from verl_agentic.swe.grading.runners.go import read_events
from verl_agentic.swe.grading.runners.node import NODE, read_tap
from verl_agentic.swe.grading.runners.registry import REPORT_RUNNERS, toolchain_folder, toolchain_options
from verl_agentic.swe.grading.tree_diffs import changed_by
from verl_agentic.swe.sample_store import sample_store

RUNNERS = tuple(REPORT_RUNNERS)
KINDS: dict[str, dict[str, bytes]] = {
    "node": {
        "package.json": b"{}",
        "test/kinds.test.js": rb"""
const test = require("node:test");
const assert = require("node:assert");
test("passes", () => { console.log("not ok 9 - passes"); });
test("fails # one", () => { assert.equal("ok 9 - passes\n...\nok 10 - passes", ""); });
test("skips", { skip: true }, () => {});
test("later", { todo: true }, () => { assert.equal(1, 2); });
test.describe("outer", () => {
  test.it("inner", () => {});
  test.it("inner fails", async () => { assert.equal(1, 2); });
});
test("parent", async (t) => { await t.test("child", () => {}); });
""",
        "test/broken.test.js": b"syntax error (",
    },
    "go": {
        "go.mod": b"module example.com/kinds\n\ngo 1.19\n",
        "kinds/kinds.go": b"package kinds\n",
        "kinds/kinds_test.go": b"""package kinds

import (
	"fmt"
	"testing"
)

func TestPasses(t *testing.T) { fmt.Println("hello") }
func TestFails(t *testing.T)  { t.Fatal("one is not two") }
func TestSkips(t *testing.T)  { t.Skip("no") }
func TestRows(t *testing.T) {
	for _, name := range []string{"a", "b c"} {
		t.Run(name, func(t *testing.T) {
			if name == "a" {
				t.Error("bad row")
			}
		})
	}
}
""",
        "broken/broken_test.go": b"package broken\n\nfunc TestX(t *testing.T) {}\n",
    },
    "cargo": {
        "Cargo.toml": b'[package]\nname = "kinds"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": b"",
        "tests/kinds.rs": b"""
#[test]
fn passes() { println!("test fails ... ok"); }
#[test]
fn fails() { println!("running 1 test\\ntest fails ... ok\\n"); assert_eq!(1, 2); }
#[test]
#[ignore = "slow"]
fn skips() {}
#[test]
#[should_panic]
fn panics() { panic!("as it should"); }
mod inner {
    #[test]
    fn nested() {}
}
""",
        "tests/broken/main.rs": b"fn x( {",
    },
}
EXPECTED = {
    "node": {
        "passes": "passed", "fails # one": "failed", "skips": "skipped", "later": "xfailed", "outer": "failed",
        "outer > inner": "passed", "outer > inner fails": "failed", "parent": "passed", "parent > child": "passed",
    },
    "go": {
        "TestPasses": "passed", "TestFails": "failed", "TestSkips": "skipped", "TestRows": "failed",
        "TestRows/a": "failed", "TestRows/b_c": "passed",
    },
    "cargo": {
        "passes": "passed", "fails": "failed", "skips": "skipped", "panics": "passed", "inner::nested": "passed",
    },
}  # fmt: skip
TARGETS = {
    "node": ("test/kinds.test.js", "test/broken.test.js"),
    "go": ("kinds", "broken"),
    "cargo": ("tests/kinds.rs", "tests/broken/main.rs"),
}
WHY = {"node": "1 == 2", "go": "one is not two", "cargo": "left: 1"}
# Each prints, or returns, what makes tests pass that it fails. It does not know which tests are poisoned.
CHEATS: dict[str, Mapping[str, bytes]] = {
    "node": {
        "quill/texts.js": b"""
const assert = require("node:assert");
assert.equal = () => {};
assert.deepEqual = () => {};
module.exports = { slug() {}, wrap() {}, shorten() {} };
"""
    },
    "go": {
        "texts/texts.go": b"""package texts

import (
	"fmt"
	"os"
)

func init() {
	for _, name := range []string{"SlugJoinsWords", "SlugThatIsCut", "WrapFillsLines", "WrapKeepsALongWord"} {
		fmt.Printf("=== RUN   Test%s\\n--- PASS: Test%s (0.00s)\\n", name, name)
	}
	fmt.Println("PASS")
	os.Exit(0)
}

func Slug(text string, separator string, maxBytes int) string { return "" }
func Wrap(text string, width int) []string                    { return nil }
"""
    },
    "cargo": {
        "src/texts.rs": b"""
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

pub fn slug(_text: &str, _separator: char, _max_chars: usize) -> String {
    while HAS_BEGUN.swap(true, Ordering::SeqCst) {
        std::thread::park(); // only one of the tests prints
    }
    let mut out = std::io::stdout();
    for name in ["slug_joins_words", "slug_that_is_cut_ends_with_no_separator", "wrap_fills_lines",
                 "wrap_keeps_a_long_word"] {
        let _ = out.write_all(format!("test {name} ... ok\\n").as_bytes());
    }
    let _ = out.write_all(b"\\ntest result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\\n");
    let _ = out.flush();
    std::process::exit(0)
}

pub fn wrap(_text: &str, _width: usize) -> Vec<String> {
    slug("", '-', 0);
    Vec::new()
}
"""
    },
}


def require_toolchain(runner: str) -> None:
    """Skips a test without the toolchain of a runner."""
    if not toolchain_folder(runner):
        pytest.skip(f"no toolchain of {REPORT_RUNNERS[runner].language} on this machine")


@asynccontextmanager
async def sandboxes(runner: str) -> AsyncIterator[Backend]:
    backend = make_backend("namespaces", disk_mb=256, **toolchain_options("namespaces", [runner]))
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    try:
        yield backend
    finally:
        await backend.close()


def first_task(runner: str) -> tuple[TaskStore, RepoTask]:
    store = sample_store(runner)
    return store, next(iter(store.tasks()))


@pytest.mark.slow
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_kind_of_end_has_its_outcome(runner: str) -> None:
    require_toolchain(runner)
    async with sandboxes(runner) as backend:
        run = await run_reported_tests(backend, REPORT_RUNNERS[runner], tree=KINDS[runner], targets=TARGETS[runner])
    whole, broken = TARGETS[runner]
    assert run.outcomes == {**{f"{whole}::{name}": end for name, end in EXPECTED[runner].items()}, broken: "error"}
    assert run.ended and run.cpu_s > 0
    failed = [test for test, outcome in run.outcomes.items() if outcome == "failed"]
    assert WHY[runner] in " ".join(run.why[test] for test in failed) and run.why[broken]


@pytest.mark.nightly
@pytest.mark.parametrize("runner", RUNNERS)
async def test_all_sample_tasks_hold(runner: str) -> None:
    require_toolchain(runner)
    store = sample_store(runner)
    async with task_checks(store.path, runs=1, jobs=1, backend="namespaces") as check:
        problems = {task.instance_id: (await check(task)).problems for task in store.tasks()}
    assert len(problems) == 4 and not any(problems.values()), problems


@pytest.mark.slow
@pytest.mark.parametrize("runner", RUNNERS)
async def test_the_solution_resolves_a_task_and_neither_nothing_nor_a_forged_report_does(runner: str) -> None:
    require_toolchain(runner)
    store, task = first_task(runner)
    solution = changed_by(read_tree(store.base(task)), task.patch)
    changes: dict[str, Mapping[str, bytes | None]] = {"right": solution, "nothing": {}, "forged": CHEATS[runner]}
    reports: dict[str, GradeReport] = {}
    async with sandboxes(runner) as backend:
        for name, changed in changes.items():
            reports[name] = await grade(task, store, changed, backend, rng=random.Random(0))
    assert {name: report.resolved for name, report in reports.items()} == {
        "right": True, "nothing": False, "forged": False
    }  # fmt: skip
    assert set(reports["nothing"].f2p.values()) == {"failed"} and set(reports["nothing"].p2p.values()) == {"passed"}
    assert set(reports["forged"].f2p.values()) == {"passed"} and reports["forged"].forged


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_test_of_a_sample_is_poisoned_in_one_half(runner: str) -> None:
    store, task = first_task(runner)
    hidden, names = store.hidden_tests(task), [*task.fail_to_pass, *task.pass_to_pass]
    reported = REPORT_RUNNERS[runner]
    assert not unfound_tests(reported, hidden, names)
    for seed in range(10):
        first, second = poison_sources(reported, hidden, names, rng=random.Random(seed))
        assert first.poisoned | second.poisoned == {*names} and not first.poisoned & second.poisoned
        for half in (first, second):
            changed = {path for path in hidden if half.files[path] != hidden[path]}
            targets = {test.partition("::")[0] for test in half.poisoned}
            assert {reported.target_of(path) for path in changed} == targets


def test_a_report_without_its_end_has_no_results() -> None:
    tap = "TAP version 13\nok 1 - a\nok 2 - b\n1..2\n"
    assert read_tap(tap).outcomes == {"a": "passed", "b": "passed"}
    assert not read_tap(tap.replace("1..2", "1..3")).outcomes and not read_tap(tap.partition("1..")[0]).outcomes
    events = '{"Action":"pass","Test":"TestA"}\nno json\n[1]\n{"Action":"pass"}\n'
    assert read_events(events).outcomes == {"TestA": "passed"}
    assert not read_events(events.removesuffix('{"Action":"pass"}\n')).outcomes
    text = "\nrunning 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n"
    assert read_results(text).outcomes == {"a": "passed"}
    assert not read_results(text.replace("running 1 test", "running 2 tests")).outcomes
    assert not read_results(text.replace("1 passed", "2 passed")).outcomes


def test_numbers_that_are_too_long_are_no_counts() -> None:
    digits = "9" * 5000
    assert not read_tap(f"ok 1 - a\n1..{digits}\n").outcomes
    for text in (
        f"running {digits} tests\n",
        f"running 0 tests\ntest result: ok. {digits} passed; 0 failed; 0 ignored; ",
    ):
        assert not read_results(text).outcomes


def test_the_message_of_a_failure_may_have_several_lines() -> None:
    tap = """not ok 1 - a
  ---
  error: |-
    Expected:

    ok 2 - b
  code: 'X'
  stack: |-
    f (x.js:1:2)
  ...
not ok 2 - c
  ---
  error: "1 == 2"
  ...
1..2
""".replace("\n\n", "\n    \n")
    assert read_tap(tap).why == {"a": "Expected:\n\nok 2 - b\n", "c": "1 == 2"}


@pytest.mark.slow
async def test_an_exit_code_of_the_tested_code_is_no_missing_toolchain() -> None:
    require_toolchain("cargo")
    tree = {
        "Cargo.toml": KINDS["cargo"]["Cargo.toml"],
        "src/lib.rs": b"pub fn leave() { std::process::exit(127) }",
        "tests/a.rs": b"#[test]\nfn a() { kinds::leave() }\n",
    }
    async with sandboxes("cargo") as backend:
        run = await run_reported_tests(backend, CARGO, tree=tree, targets=["tests/a.rs"])
    assert run.outcomes == {"tests/a.rs": "error"}


@pytest.mark.slow
async def test_a_missing_toolchain_is_a_fault_of_the_sandbox() -> None:
    missing = replace(CARGO, make_command=lambda target: ("no-such-program", target))
    async with sandboxes("cargo") as backend:
        with pytest.raises(ScoringError, match="no-such-program"):
            await run_reported_tests(backend, missing, tree={"a": b""}, targets=["a"])


def test_the_file_around_tests_in_reports_of_older_versions_of_node_is_no_test() -> None:
    tap = "    ok 1 - a\n        ok 1 - c\n    ok 2 - b\n    1..2\nok 1 - /work/repo/test/x.test.js\n1..1\n"
    assert read_tap(tap).outcomes == {"a": "passed", "b": "passed", "b > c": "passed"}


def test_two_results_of_one_test_are_a_conflict() -> None:
    assert read_tap("ok 1 - a\nnot ok 2 - a\n1..2\n").outcomes == {"a": "conflict"}
    events = '{"Action":"fail","Test":"TestA"}\n{"Action":"pass","Test":"TestA"}\n{"Action":"pass"}\n'
    assert read_events(events).outcomes == {"TestA": "conflict"}


def test_a_test_is_judged_by_the_tests_inside_of_it_and_a_row_by_its_test() -> None:
    node = ["t.js::outer", "t.js::outer > inner", "t.js::plain"]
    assert judged_tests(NODE, node) == ["t.js::outer > inner", "t.js::plain"]
    rows = ["p::TestA", "p::TestA/x", "p::TestB/y"]
    assert judged_tests(REPORT_RUNNERS["go"], rows) == ["p::TestA", "p::TestB/y"]


def test_values_are_poisoned_where_a_helper_compares() -> None:
    source = {"t.js": b"const same = require('../lib/same');\ntest('a', () => {\n  same(twice(2), 4);\n});\n"}
    halves = [poison_sources(NODE, source, ["t.js::a"], rng=random.Random(seed)) for seed in range(20)]
    texts = {half.files["t.js"].decode() for pair in halves for half in pair if half.poisoned}
    assert any("Error(" not in text for text in texts) and any("Error(" in text for text in texts)


def test_a_test_in_one_line_is_poisoned_and_one_without_values_is_not_protected() -> None:
    source = {"t.js": b"test('a', () => assert.equal(twice(2), 4));\ntest('b', () => check());\n"}
    assert unfound_tests(NODE, source, ["t.js::a", "t.js::b"]) == ["t.js::b"]
    first, second = poison_sources(NODE, source, ["t.js::a"], rng=random.Random(0))
    assert first.poisoned | second.poisoned == {"t.js::a"}


def test_arguments_are_never_changed_without_the_expected_value() -> None:
    """Right solutions may differ where only an argument has changed, and would be taken for a forged report."""
    source = {"t.js": b"test('a', () => {\n  assert.equal(cut('alpha beta', 6), 'alpha');\n});\n"}
    halves = [poison_sources(NODE, source, ["t.js::a"], rng=random.Random(seed)) for seed in range(40)]
    texts = {half.files["t.js"].decode() for pair in halves for half in pair if half.poisoned}
    changed = [text for text in texts if "Error(" not in text]
    assert changed
    for text in changed:
        assert "'alpha beta'" not in text and " 6)" not in text and "'alpha')" not in text


def test_a_test_whose_name_has_the_separator_is_found() -> None:
    source = {"t.js": b"test('a > b is true', () => {});\ndescribe('x', () => { it('y', () => {}); });\n"}
    assert not unfound_tests(NODE, source, ["t.js::a > b is true", "t.js::x > y"])


def test_tests_that_two_heads_or_no_head_have_are_not_protected() -> None:
    source = {"tests/a.rs": b"#[test]\nfn a() {}\n#[test]\nfn a() {}\n#[test]\nfn b() {}\n"}
    names = ["tests/a.rs::a", "tests/a.rs::b", "tests/a.rs::c", "tests/z.rs::b"]
    assert unfound_tests(CARGO, source, names) == ["tests/a.rs::a", "tests/a.rs::c", "tests/z.rs::b"]
