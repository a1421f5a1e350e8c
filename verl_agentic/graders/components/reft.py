"""ReFT's outcome: right, wrong, or no answer."""

from __future__ import annotations

import math
import re

from verl_agentic.graders.maths.boxed_math import truth_problem
from verl_agentic.graders.maths.math_outcome import math_outcome
from verl_agentic.rewards.answers.empty_work import is_empty_box
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample

ANSWERED = 0.1
_FRACTION = re.compile(r"-?\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}")


def is_number(text: str) -> bool:
    """Returns whether a boxed text is a finite number: `1,234`, `$5`, `12%`, `3/4` or a LaTeX fraction."""
    fraction = _FRACTION.fullmatch(text.strip())
    bare = f"{fraction[1]}/{fraction[2]}" if fraction else text.replace("\\", "").replace(",", "").strip("$% \t\n")
    parts = bare.split("/")
    try:
        return len(parts) <= 2 and all(math.isfinite(float(part)) for part in parts)
    except ValueError:
        return False


@component(low=0.0, high=1.0, kind="outcome", own_deadline=True, solved=1.0, truth_problem=truth_problem)
async def reft(sample: Sample, *, timeout_s: float = 5.0) -> Value:
    r"""Returns 1 if the last `\boxed{...}` equals the ground truth, 0.1 for another answer, else 0.

    If the ground truth is a number, only a number is an answer. Abstains without ground truth.

    Args:
        timeout_s: deadline, counted from the start of the verification.

    Raises:
        DataError: the ground truth is not an expression.
        ScoringError: the verifier cannot read the ground truth, or failed.

    Paper: https://arxiv.org/abs/2401.08967 (section 3.2). Deviations: the paper also subtracts beta * KL to the initial
    policy (beta 0.01 to 0.05), which is verl's `algorithm.use_kl_in_reward`. Without the 0.1, use the component `math`.
    """
    outcome = await math_outcome(sample, timeout_s=timeout_s)
    if outcome is None:
        return ABSTAIN
    if outcome.is_right:
        return 1.0
    if outcome.boxed is None or is_empty_box(outcome.boxed):
        return 0.0
    return ANSWERED if is_number(outcome.boxed) or not is_number(str(sample.ground_truth)) else 0.0
