"""Scores an episode by a panel of LLM judges with their own rubric."""

from __future__ import annotations

from typing import Any

from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import INFO, rule
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample


@component(
    info=INFO, outcome_options={"on_invalid": "zero"}, check=lambda **options: JudgeOptions.from_mapping(options)
)
async def judge(sample: Sample, **options: Any) -> Graded:
    """Returns the weighted share of the items that the panel accepts; abstains without a majority.

        sum_i(w_i * v_i) / sum_i(w_i), v_i = the majority's value of item i, in [0, 1]

    It is shaping, unless the rubric says `kind: outcome`. To give a rule priority, gate the judge: `only_if: {math:
    1.0}`.

    As an outcome, an answer that is not a valid verdict counts against the work (`on_invalid: zero`), so a policy gains
    nothing by breaking the judge's form. As shaping it has no vote (`abstain`). A judge without an answer (HTTP errors,
    timeouts) never votes. A panel that disagrees abstains. An episode without an answer and without a call gets 0
    without a request.

    Args:
        sample: quoted as data (`judge/quote.py`), without the policy's thoughts.
        options: see `JudgeOptions`; `endpoint` and `models` are required.

    Raises:
        ConfigError: the key, the URL or a model is wrong; other failures of a judge are abstentions.
    """
    settings = JudgeOptions.from_mapping(options)
    if is_silent(sample):
        return Graded(value=0.0)
    return (await rule(settings.blocks(sample), settings)).to_graded()
