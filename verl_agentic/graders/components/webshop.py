"""WebShop's score of a purchase."""

from __future__ import annotations

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.graders.answers.ground_truth import object_of
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Value, component
from verl_agentic.rewards.sample import Sample

_INFO = ("matched_attributes", "matched_options", "price_ok", "type_score")


def webshop_score(
    *, attributes: int, matched_attributes: int, options: int, matched_options: int, price_ok: bool, type_score: float
) -> float:
    """Returns the score of a purchase, from 0 to 1.

        r_type * (|U_att & Y_att| + |U_opt & Y_opt| + 1[price <= limit]) / (|U_att| + |U_opt| + 1)

    Args:
        attributes: |U_att|, number of requested attributes.
        matched_attributes: how many of them the purchase has.
        options: |U_opt|, number of requested options.
        matched_options: how many of them were chosen. The original counts an option chosen twice as two, and can exceed
            1.
        price_ok: the price is within the limit.
        type_score: r_type, see `type_score`.
    """
    matched = min(matched_attributes, attributes) + min(matched_options, options) + price_ok
    return type_score * matched / (attributes + options + 1)


def type_score(title_match: float, *, query_match: bool = False, category_match: bool = False) -> float:
    """Returns r_type: 0 without a common noun in the titles, 0.1 below a tenth, 0.5 for another kind of thing, else 1.

    Args:
        title_match: share of the wanted title's nouns in the bought one.
        query_match: the same query finds both.
        category_match: both share at least two categories.
    """
    if title_match == 0.0:
        return 0.0
    if title_match < 0.1:
        return 0.1
    return 1.0 if query_match or category_match or title_match > 0.2 else 0.5


@component(low=0.0, high=1.0, kind="outcome", inline=True, needs_ground_truth=True)
def webshop(sample: Sample) -> Value:
    """Returns WebShop's score of the final state; 0 when nothing was bought; see `webshop_score`. Success is 1.

    The environment reports `bought` (0 or 1) and, for a purchase, `matched_attributes`, `matched_options`, `price_ok`
    (0 or 1) and `type_score` in its `Reward.info`. The policy's text does not count. Abstains without ground truth.

    Raises:
        DataError: the ground truth is not `{"attributes": [...], "options": [...]}`.
        ScoringError: the environment did not report the purchase.

    Paper: https://arxiv.org/abs/2207.01206
    """
    goal = object_of(sample.ground_truth, of="webshop")
    sizes = [
        len(goal[key]) if isinstance(goal.get(key), list | tuple | dict) else -1 for key in ("attributes", "options")
    ]
    if min(sizes) < 0:
        raise DataError(
            f'ground truth of webshop needs lists "attributes" and "options", got {sorted(goal)}; fix the row'
        )
    info = dict(sample.env.info) if sample.env is not None else {}
    if info.get("bought") == 0 or is_silent(sample):
        return 0.0
    if missing := [key for key in ("bought", *_INFO) if key not in info]:
        raise ScoringError(f"the environment must report {missing}, got info {sorted(info)}; fix the environment")
    return webshop_score(
        attributes=sizes[0],
        matched_attributes=int(info["matched_attributes"]),
        options=sizes[1],
        matched_options=int(info["matched_options"]),
        price_ok=info["price_ok"] > 0,
        type_score=info["type_score"],
    )
