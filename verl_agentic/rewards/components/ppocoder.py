"""PPOCoder's reward: does the program compile, and how much is it like the reference solution? Python only."""

from __future__ import annotations

import json
from collections.abc import Mapping

from verl_agentic.errors import ConfigError, DataError
from verl_agentic.rewards.code.extract_program import extract_code
from verl_agentic.rewards.code.program_match import ast_match, data_flow_match, is_empty_program, parse, parse_reference
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample


def _check(ast_weight: float, data_flow_weight: float) -> None:
    if min(ast_weight, data_flow_weight) < 0:
        raise ConfigError(f"weights must not be negative, got {ast_weight} and {data_flow_weight}; 0 leaves one out")


@component(
    low=-1.0,
    high=lambda ast_weight, data_flow_weight: 1.0 + ast_weight + data_flow_weight,
    info=("ast_match", "data_flow_match"),
    check=_check,
)
def ppocoder(sample: Sample, *, ast_weight: float = 1.0, data_flow_weight: float = 1.0) -> Graded:
    """Returns -1 for a program that does not compile, else 1 + ast_weight * AST match + data_flow_weight * DFG match.

    The program is what `extract_code` finds in the final answer; without one, or without a statement that does
    something, nothing compiles. Both matches are shares of what the *reference* has: code that is added beside it costs
    nothing, and a program that resembles one that works
    need not work. So this is shaping, beside `code_tests`.

    Args:
        ast_weight: of the AST match.
        data_flow_weight: of the data flow match; the paper weighs all alike.

    Raises:
        DataError: the reference is no Python that compiles.

    Rows have the reference solution as ground truth: as text, or under `solution` of an object, which may have the
    tests of `code_tests` beside it. Without one it abstains.

    Paper: https://arxiv.org/abs/2301.13816. Deviations: the paper also subtracts a KL term, which is verl's
    (`algorithm.use_kl_in_reward`), and has CodeRL's four levels in place of +-1 where a task has unit tests (`coderl`).
    See `code_match` for what differs in the matching.
    """
    solution = _solution(sample.ground_truth)
    if solution is None:
        return ABSTAIN
    reference = parse_reference(solution)
    code = extract_code(sample.final_answer)
    candidate = None if code is None else parse(code)
    if candidate is None or is_empty_program(candidate):
        return Graded(value=-1.0, info={"ast_match": 0.0, "data_flow_match": 0.0})
    trees, flows = ast_match(candidate, reference), data_flow_match(candidate, reference)
    value = 1.0 + ast_weight * trees + data_flow_weight * flows
    return Graded(value=value, info={"ast_match": trees, "data_flow_match": flows})


def _solution(ground_truth: object) -> str | None:
    """Returns the reference; None where the row has none."""
    if isinstance(ground_truth, str) and ground_truth.lstrip().startswith("{"):
        try:
            ground_truth = json.loads(ground_truth)
        except ValueError:
            return ground_truth if isinstance(ground_truth, str) else None
    solution = ground_truth.get("solution") if isinstance(ground_truth, Mapping) else ground_truth
    if solution is not None and not isinstance(solution, str):
        raise DataError(
            f'a reference solution must be text, or an object with the text under "solution", got '
            f"{type(solution).__name__}; mend the row"
        )
    return solution
