"""Decides whether an answer equals a ground truth, in the children of `graders.maths.math_worker`."""

from __future__ import annotations

from verl_agentic.graders.maths.forms.math_comparison import are_equal, is_evaluated
from verl_agentic.graders.maths.forms.math_notation import depth
from verl_agentic.graders.maths.forms.math_scalars import plain_text
from verl_agentic.graders.maths.forms.math_structures import read_structure

_MAX_DEPTH = 40


class TruthError(ValueError):
    """The ground truth is not an expression."""


def judge(answer: str, truth: str, *, must_be_evaluated: bool = False) -> bool:
    """Returns whether two expressions are equal, and evaluated if required.

    Args:
        answer: the policy's answer, as `math_notation.tidy` returns it.
        truth: the ground truth, as `math_notation.tidy` returns it.
        must_be_evaluated: ignored if the truth itself is not evaluated.

    Raises:
        TruthError: the truth cannot be read.
    """
    if not plain_text(truth) or depth(truth) > _MAX_DEPTH:
        raise TruthError("the ground truth is no mathematical expression")
    if not answer or depth(answer) > _MAX_DEPTH:
        return False
    truth_structure, answer_structure = read_structure(truth), read_structure(answer)
    if must_be_evaluated and is_evaluated(truth_structure) and not is_evaluated(answer_structure):
        return False
    return are_equal(answer_structure, truth_structure)
