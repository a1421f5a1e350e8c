"""ReFT's outcome: right, wrong, or no answer at all."""

from __future__ import annotations

import math
import re

from verl_agentic.rewards.answers.math_outcome import math_outcome
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_empty_box

ANSWERED = 0.1
_FRACTION = re.compile(r"-?\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}")


def is_number(text: str) -> bool:
    """Tells whether a text is a finite number, maybe with commas, a dollar or per cent sign, or as a fraction.

    Args:
        text: as it stands in a box: `1,234`, `$5`, `12%`, `3/4`, `frac{3}{4}` with its backslash.
    """
    fraction = _FRACTION.fullmatch(text.strip())
    bare = f"{fraction[1]}/{fraction[2]}" if fraction else text.replace("\\", "").replace(",", "").strip("$% \t\n")
    parts = bare.split("/")
    try:
        return len(parts) <= 2 and all(math.isfinite(float(part)) for part in parts)
    except ValueError:
        return False


@component(low=0.0, high=1.0, kind="outcome", own_deadline=True)
async def reft(sample: Sample, *, timeout_s: float = 5.0) -> Value:
    r"""Returns 1 when the last `\boxed{...}` equals the ground truth, 0.1 when it is another answer, else 0.

    Where the ground truth is a number, only a number is an answer. Abstains without ground truth.

    Args:
        sample: the episode.
        timeout_s: deadline of the verdict, from when a verifier has taken it up.

    Raises:
        DataError: the ground truth is no expression.
        ScoringError: the verifier cannot read the ground truth, or failed.

    Paper: https://arxiv.org/abs/2401.08967 (section 3.2). Deviations: its total reward takes beta * KL to the first
    policy away (beta 0.01 to 0.05); that is verl's `algorithm.use_kl_in_reward`, no component. Without the 0.1 for what
    can be extracted, it is the component `math`.
    """
    outcome = await math_outcome(sample, timeout_s=timeout_s)
    if outcome is None:
        return ABSTAIN
    if outcome.is_right:
        return 1.0
    if outcome.boxed is None or is_empty_box(outcome.boxed):
        return 0.0
    return ANSWERED if is_number(outcome.boxed) or not is_number(str(sample.ground_truth)) else 0.0
