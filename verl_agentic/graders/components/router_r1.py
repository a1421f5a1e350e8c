"""Router-R1's outcome: a right answer gets more reward if cheaper models were asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.text.tags import are_flat, blocks, last_block, marks
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches, overlap
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts

Metric = Literal["em", "f1"]
_TAGS = ("think", "search", "information", "answer")
_PLACEHOLDERS = ("llm-name", "your-query")


def router_reward(outcome: float, *, is_well_formed: bool, cheapness: float, alpha: float) -> float:
    """Returns -1 for a broken form, 0 for a wrong answer, else (1 - alpha) * outcome + alpha * cheapness.

    Args:
        outcome: score of the answer, from 0 to 1.
        cheapness: from 0 to 1, 1 for the cheapest; see `cheapness_of`.
        alpha: weight of the cost.
    """
    if not is_well_formed:
        return -1.0
    return (1.0 - alpha) * outcome + alpha * cheapness if outcome else 0.0


def cheapness_of(cost: float, *, low: float, high: float) -> float:
    """Returns 1 - (sqrt(cost) - sqrt(low)) / (sqrt(high) - sqrt(low)), clamped to [0, 1].

    Args:
        cost: at least 0.
        low: 5th percentile of the costs of episodes.
        high: 95th percentile.
    """
    share = (math.sqrt(cost) - math.sqrt(low)) / (math.sqrt(high) - math.sqrt(low))
    return 1.0 - min(1.0, max(0.0, share))


def has_router_form(turns: Sequence[str], *, is_answered: Sequence[bool], models: Sequence[str] = ()) -> bool:
    """Returns whether the turns have Router-R1's form.

    A thought comes first and exactly one answer last. Tags are not nested, and no thought is empty or `...`. Every
    search is `model: query`, was answered, and does not contain the prompt's placeholders or the model's own name.

    Args:
        turns: the policy's texts, without special tokens at the end.
        is_answered: for each turn, whether its searches were answered.
        models: allowed models; empty: any.
    """
    text = "\n".join(turns)
    order = marks(text, _TAGS)
    if not (are_flat(order) and text.startswith("<think>") and text.endswith("</answer>")):
        return False
    if order.count("answer") != 1 or any(thought.strip() in ("", "...") for thought in blocks(text, "think")):
        return False
    turn_queries = [blocks(turn, "search") for turn in turns]
    from_outside = sum(len(queries) for queries, answered in zip(turn_queries, is_answered, strict=True) if answered)
    if sum(map(len, turn_queries)) != from_outside + order.count("information"):
        return False
    model_names = {model.strip().lower() for model in models}
    return all(_is_route(query, model_names) for queries in turn_queries for query in queries)


def _is_route(query: str, models: set[str]) -> bool:
    model, _, question = (part.strip() for part in query.lower().partition(":"))
    if query.count(":") != 1 or not model or not question or model in question:
        return False
    return not any(word in query.lower() for word in _PLACEHOLDERS) and (not models or model in models)


def _check_options(alpha: float, cost_range: Sequence[float]) -> None:
    if cost_range and not (len(cost_range) == 2 and 0 <= cost_range[0] < cost_range[1] < math.inf):
        raise ConfigError(
            f"router_r1.cost_range must be the 5th and 95th percentile of costs, got {list(cost_range)}; measure them"
        )
    if not 0 <= alpha <= 1:
        raise ConfigError(f"router_r1 needs an alpha from 0 to 1, got {alpha}")


@component(low=-1.0, kind="outcome", inline=True, check=_check_options, needs_ground_truth=True)
def router_r1(
    sample: Sample,
    *,
    alpha: float = 0.6,
    metric: Metric = "em",
    models: Sequence[str] = (),
    cheapness: str | float = "cheapness",
    cost_range: Sequence[float] = (),
) -> Graded:
    """Returns -1 for a broken form, 0 for a wrong answer, else (1 - alpha) * match + alpha * cheapness.

    `acc` is the match of an answer in the right form, without the cost. Abstains without ground truth. Costs are
    normalised by a fixed range, so that a stored episode always has the same score.

    Args:
        alpha: weight of the cost, from 0 to 1.
        metric: `em` or `f1`.
        models: allowed models; empty: any.
        cheapness: from 0 to 1, 1 for the cheapest: a number, or its key in the environment's info or the row's
            `extra_info`. With `cost_range`, the cost in any unit.
        cost_range: 5th and 95th percentile of the costs of episodes, for example of an evaluation; see `cheapness_of`.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`; or the cheapness is
            missing.

    Paper: https://arxiv.org/abs/2506.09033 (cases as in its `qa_em.py`; its scripts have alpha 0). Deviations: the
    original uses percentiles of the last costs, so its value depends on the order of the episodes.
    """
    golden = golden_answers_of(sample.ground_truth)
    turns = list(texts(sample.turns, starts_in_reasoning=False))
    answer = last_block(turns, "answer") or ""
    outcome = (overlap if metric == "f1" else matches)(answer, golden)
    is_answered = [bool(turn.observations) for turn in sample.turns]
    is_well_formed = has_router_form(turns, is_answered=is_answered, models=models)
    share = _read_cheapness(sample, cheapness, cost_range) if alpha else 0.0
    value = router_reward(outcome, is_well_formed=is_well_formed, cheapness=share, alpha=alpha)
    return Graded(value=value, solved=outcome if is_well_formed else 0.0)


def _read_cheapness(sample: Sample, option: str | float, cost_range: Sequence[float]) -> float:
    value = option
    if isinstance(option, str):
        value = (sample.env.info if sample.env is not None else {}).get(option, sample.extra.get(option))
    highest = math.inf if cost_range else 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= highest:
        needed = "a cost of at least 0" if cost_range else "a cheapness from 0 to 1"
        raise DataError(
            f"router_r1 needs {needed}, got {value!r} for {option!r}; let the environment report it, or set alpha to 0"
        )
    return cheapness_of(value, low=cost_range[0], high=cost_range[1]) if cost_range else float(value)
