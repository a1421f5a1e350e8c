"""PPOCoder: compiling, matching trees and matching data flow, by hand."""

from __future__ import annotations

import ast
import json
import time
from typing import Any

import pytest
from samples import sample

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.code.program_match import MAX_CHARS, ast_match, data_flow_match, parse
from verl_agentic.graders.components.ppocoder import ppocoder
from verl_agentic.rewards.component import ABSTAIN

REFERENCE = "x = 1 + 2\ny = x * 3\n"


def answer(code: str) -> str:
    return f"```python\n{code}\n```"


def value(code: str, reference: Any = REFERENCE, **options: Any) -> Any:
    return ppocoder.make(options)(sample(answer(code), ground_truth=reference))


def trees(candidate: str, reference: str) -> tuple[ast.Module, ast.Module]:
    return ast.parse(candidate), ast.parse(reference)


def test_the_ast_match_is_the_share_of_the_references_subtrees() -> None:
    # Subtrees of REFERENCE: Module, 2 x Assign, BinOp(Constant + Constant), BinOp(Name * Constant): 5.
    assert ast_match(*trees(REFERENCE, REFERENCE)) == 1.0
    assert ast_match(*trees("a = 7 + 8", REFERENCE)) == 2 / 5  # Assign and BinOp of the first line
    assert ast_match(*trees("a = 7 - 8", REFERENCE)) == 0.0
    assert ast_match(*trees(f"{REFERENCE}print(y)", REFERENCE)) == 4 / 5  # all but Module
    assert ast_match(*trees("", REFERENCE)) == 0.0


def test_a_subtree_that_is_wanted_twice_must_be_there_twice() -> None:
    twice = "x = 1 + 2\ny = 1 + 2\n"  # Module, 2 Assign, 2 BinOp
    assert ast_match(*trees("x = 1 + 2\nz()", twice)) == 2 / 5


def test_names_and_constants_do_not_count() -> None:
    assert ast_match(*trees("total = 5 + 9\nrest = total * 0", REFERENCE)) == 1.0
    assert data_flow_match(*trees("total = 5 + 9\nrest = total * 0", REFERENCE)) == 1.0


def test_the_data_flow_match_is_the_share_of_the_references_edges() -> None:
    reference = "a = 1\nb = a + 1\nc = a * b"  # a <- (), b <- (a), c <- (a, b)
    assert data_flow_match(*trees("p = 1\nq = p + 1\nr = p * q", reference)) == 1.0
    assert data_flow_match(*trees("p = 1\nq = p + 1", reference)) == pytest.approx(2 / 3)
    assert data_flow_match(*trees("p = 1\nq = p + 1\nr = q * q", reference)) == pytest.approx(2 / 3)
    assert data_flow_match(*trees("print('a')", reference)) == 0.0


def test_a_reference_without_data_flow_gives_nothing() -> None:
    assert data_flow_match(*trees("print(1)", "print(1)")) == 0.0


@pytest.mark.parametrize(
    ("source", "edges"),
    [
        ("for i in xs: pass", "i <- xs"),
        ("[i for i in xs]", "i <- xs"),
        ("with a as b: pass", "b <- a"),
        ("def f():\n return a", "return <- a"),
        ("if (n := a): pass", "n <- a"),
        ("n: int = a", "n <- a"),
        ("n.field[0] = a", "n <- a"),
    ],
)
def test_values_flow_by_more_than_assignment(source: str, edges: str) -> None:
    target, _, origin = edges.partition(" <- ")
    plain = f"{target if target != 'return' else 'z'} = {origin}"
    assert data_flow_match(*trees(source, plain)) == 1.0


def test_an_augmented_assignment_depends_on_the_old_value() -> None:
    assert data_flow_match(*trees("n += a", "n = n + a")) == 1.0
    assert data_flow_match(*trees("n = a", "n += a")) == 0.0


def test_several_targets_get_the_same_sources() -> None:
    assert data_flow_match(*trees("a, (b, *c) = x, y", "a = x, y\nb = x, y\nc = x, y")) == 1.0


def test_the_parts_add_up() -> None:
    # vectors.json: compiles, AST 0.8, DFG 0.5 -> 1 + 0.8 + 0.5 = 2.3. Here: AST 4/5 (all but Module),
    # and of the data flow x <- (), y <- (x): 2/2.
    graded = value(f"{REFERENCE}print(y)")
    assert graded.value == pytest.approx(1 + 0.8 + 1.0)
    assert graded.info == {"ast_match": pytest.approx(0.8), "data_flow_match": 1.0}
    half = value("x = 1 + 2\nprint(x * 3)")  # BinOp + and Assign, BinOp *: 3/5; x <- (): 1/2
    assert half.value == pytest.approx(1 + 0.6 + 0.5)
    assert value("x = 1 + 2\nprint(x * 3)", ast_weight=0.5, data_flow_weight=0.2).value == pytest.approx(1.4)
    made = ppocoder.make({"ast_weight": 0.5, "data_flow_weight": 0.2})
    assert (made.low, made.high) == (-1.0, 1.7)


@pytest.mark.parametrize("code", ["def f(:", "return", "x = = 1", "\0", "(" * 500 + ")" * 500, "x" * (MAX_CHARS + 1)])
def test_what_does_not_compile_is_worth_minus_one(code: str) -> None:
    graded = value(code)
    assert graded.value == -1.0 and graded.info == {"ast_match": 0.0, "data_flow_match": 0.0}


def test_an_answer_without_a_program_does_not_compile() -> None:
    assert ppocoder.make({})(sample("x = 1 + 2", ground_truth=REFERENCE)).value == -1.0


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "code",
    [
        "1" + "+1" * 45_000,
        "a" + ".b" * 45_000,
        "a" + "()" * 45_000,
        "-" * 45_000 + "1",
        "if 1:\n x\n" + "elif 1:\n x\n" * 8_000,
        "x = '\ud800'",
        "'\\d' is 1",
        "=".join(f"a{n}" for n in range(6_000)) + "=" + "+".join(f"b{n}" for n in range(6_000)),
        "(a:=" * 90 + "1" + ")" * 90,
        "x=1;" * 24_000,
    ],
    ids=["sums", "attributes", "calls", "minus", "elif", "surrogate", "warnings", "edges", "walrus", "statements"],
)
def test_no_program_breaks_it_or_keeps_it_busy(code: str) -> None:
    started = time.monotonic()
    assert -1.0 <= value(code).value <= 3.0
    assert time.monotonic() - started < 15.0


def test_the_reference_may_stand_beside_tests() -> None:
    row = {"inputs": ["1"], "outputs": ["2"], "solution": REFERENCE}
    assert value(REFERENCE, row).value == value(REFERENCE, json.dumps(row)).value == 3.0
    assert value(REFERENCE, {"inputs": ["1"], "outputs": ["2"]}) is ABSTAIN
    assert value(REFERENCE, None) is ABSTAIN


@pytest.mark.parametrize("reference", ["def f(:", "", "# nothing", {"solution": 3}, 7])
def test_a_reference_that_is_none_is_an_error_of_the_row(reference: Any) -> None:
    with pytest.raises(DataError, match="reference"):
        value(REFERENCE, reference)


def test_negative_weights_are_refused() -> None:
    with pytest.raises(ConfigError):
        ppocoder.make({"ast_weight": -1})


def test_the_compiler_does_not_warn_of_style() -> None:
    assert parse("x = 1 is 1\ny = '\\d'") is not None
