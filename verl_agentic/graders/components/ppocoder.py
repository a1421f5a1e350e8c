"""PPOCoder's reward: whether the program compiles, and its similarity to the reference solution. Python only."""

from __future__ import annotations

import json
from collections.abc import Mapping

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.code.extract_program import extract_code
from verl_agentic.graders.code.program_match import ast_match, data_flow_match, is_empty_program, parse, parse_reference
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample


def _check_options(ast_weight: float, data_flow_weight: float) -> None:
    if min(ast_weight, data_flow_weight) < 0:
        raise ConfigError(f"weights must not be negative, got {ast_weight} and {data_flow_weight}; 0 leaves one out")


@component(
    low=-1.0,
    high=lambda ast_weight, data_flow_weight: 1.0 + ast_weight + data_flow_weight,
    info=("ast_match", "data_flow_match"),
    check=_check_options,
)
def ppocoder(sample: Sample, *, ast_weight: float = 1.0, data_flow_weight: float = 1.0) -> Graded:
    """Returns -1 for a program that does not compile, else 1 + ast_weight * AST match + data_flow_weight * DFG match.

    A missing or empty program does not compile (`extract_code`). Both matches are shares of the reference, so added
    code costs nothing, and a similar program
    need not work. So use this as shaping, with `code_tests`.

    Args:
        ast_weight: weight of the AST match.
        data_flow_weight: weight of the data flow match; the paper's weights are equal.

    Raises:
        DataError: the reference is not Python that compiles.

    The ground truth is the reference solution: a text, or `solution` of an object, which may also have the tests of
    `code_tests`. Abstains without a reference.

    Paper: https://arxiv.org/abs/2301.13816. Deviations: the paper also subtracts a KL term, which is verl's
    (`algorithm.use_kl_in_reward`), and uses CodeRL's four levels for tasks with unit tests (`coderl`). For the
    matching, see `graders.code.program_match`.
    """
    solution = _read_reference_solution(sample.ground_truth)
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


def _read_reference_solution(ground_truth: object) -> str | None:
    """Returns the reference, or None."""
    if isinstance(ground_truth, str) and ground_truth.lstrip().startswith("{"):
        try:
            ground_truth = json.loads(ground_truth)
        except ValueError:
            return ground_truth if isinstance(ground_truth, str) else None
    solution = ground_truth.get("solution") if isinstance(ground_truth, Mapping) else ground_truth
    if solution is not None and not isinstance(solution, str):
        raise DataError(
            f'a reference solution must be text, or an object with the text under "solution", got '
            f"{type(solution).__name__}; fix the row"
        )
    return solution
