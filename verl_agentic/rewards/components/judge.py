"""What a panel of language models says of an episode, by items of its own rubric."""

from __future__ import annotations

from typing import Any

from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.judge.options import JudgeOptions
from verl_agentic.rewards.judge.panel import INFO, rule
from verl_agentic.rewards.models.quote import blocks_of
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_silent


@component(
    info=INFO, outcome_options={"on_invalid": "zero"}, check=lambda **options: JudgeOptions.from_mapping(options)
)
async def judge(sample: Sample, **options: Any) -> Graded:
    """Returns the weighted share of the items that the panel says are met; an abstention when it has no majority.

        sum_i(w_i * v_i) / sum_i(w_i), v_i = what more than half of all judges say of item i, in [0, 1]

    It is shaping, unless the rubric says `kind: outcome`. A rule keeps the last word where the rubric gates the judge
    by it: `only_if: {math: 1.0}`.

    A judge that answers, but not with a verdict, votes against the work where it is an outcome of the rubric
    (`on_invalid: zero`): a policy that talks its judge out of the form gets 0. As shaping it has no vote (`abstain`).
    A judge that gives no answer (HTTP errors, time-outs) never has a vote: that is no judgement on the policy. A panel
    of judges that disagree abstains. An episode without an answer and without a call gets 0, and nobody is asked.

    Args:
        sample: what is judged; all of it is quoted as data (`judge/quote.py`), without the policy's thoughts.
        options: see `JudgeOptions`; `endpoint` and `models` are needed.

    Raises:
        ConfigError: the key, the URL or a model is wrong; other failures of a judge are abstentions.
    """
    settings = JudgeOptions.from_mapping(options)
    if is_silent(sample):
        return Graded(value=0.0)
    blocks = blocks_of(
        sample,
        view=settings.view,
        thoughts=settings.thoughts,
        reference=settings.reference,
        max_chars=settings.max_chars,
    )
    return (await rule(blocks, settings)).to_graded()
