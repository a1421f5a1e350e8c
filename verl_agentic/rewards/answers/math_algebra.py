"""Evaluates sums, integrals and limits with math-verify's reader and sympy, in the children of `math_worker`."""

from __future__ import annotations

import re
from typing import Any

import sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, parse

from verl_agentic.rewards.answers.math_expressions import Node, UnreadableError, read_expression

_CALCULUS = re.compile(r"\\(?:sum|prod|i?int|lim|det|max|min|gcd|lcm|frac\{d)(?![a-zA-Z])|\bmod\b|\\bmod")
_MAX_CHARS = 400
_CONFIG = [
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="all")
    )
]


def is_calculus(text: str) -> bool:
    """Returns whether a text has a sum, an integral or the like."""
    return bool(_CALCULUS.search(text))


def tree_of_calculus(text: str) -> Node | None:
    r"""Returns the tree of the value of an expression with `\sum`, `\prod`, `\int` or `\lim`; None for other texts."""
    if not is_calculus(text) or len(text) > _MAX_CHARS:
        return None
    # The parent enforces the deadline. 0 switches math-verify's own alarm signals off.
    parsed: list[Any] = parse(f"\\boxed{{{text}}}", extraction_config=_CONFIG, parsing_timeout=0)
    if not parsed or not isinstance(parsed[0], sympy.Expr):
        return None
    try:
        return read_expression(sympy.sstr(parsed[0].doit()))
    except UnreadableError:
        return None
