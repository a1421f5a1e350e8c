"""Compares two samples in both orders, because judges have a position bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.graders.judge.judge_verdict import Winner, read_preference
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import CostTotal, Opinion, ask_all, gathered
from verl_agentic.graders.judge.prompts import pair_prompt
from verl_agentic.graders.judge.vote import majority
from verl_agentic.graders.models.quote import Block

_SHARED_SOURCES = ("task", "reference")
_SWAPPED: dict[Winner, Winner] = {"A": "B", "B": "A", "tie": "tie"}
_POINTS: dict[Winner, float] = {"A": 1.0, "B": 0.0, "tie": 0.5}


@dataclass(frozen=True, kw_only=True)
class PairComparison:
    """Two samples side by side."""

    points: float | None
    """Points of the first sample: 1 won, 0 lost, 0.5 tie; None if half or more of the judges gave no valid verdict."""
    costs: CostTotal
    is_invalid: bool = False
    """Whether points are missing because half or more of the judges gave invalid answers."""


async def compare(
    first: Sequence[Block], second: Sequence[Block], options: JudgeOptions, criterion: str
) -> PairComparison:
    """Returns which of two samples of one task is better.

    Each judge is asked twice, once per order; one that contradicts itself counts as a tie. A panel without a majority
    gives a tie.

    Args:
        first: blocks of `blocks_of`, with task and reference.
        second: blocks of the other sample.
        criterion: definition of better, as the end of a sentence.

    Raises:
        ConfigError: the key, the URL or a model is wrong.
    """
    task = [block for block in first if block.source in _SHARED_SOURCES]
    first, second = ([b for b in blocks if b.source not in _SHARED_SOURCES] for blocks in (first, second))
    forward, backward = await gathered(
        [_ask_in_order(task, first, second, options, criterion), _ask_in_order(task, second, first, options, criterion)]
    )
    votes: list[Winner | None] = [
        _combine_orders(opinion.value, swapped.value) for opinion, swapped in zip(forward, backward, strict=True)
    ]
    valid_votes = [vote for vote in votes if vote is not None]
    points = None if 2 * len(valid_votes) <= len(votes) else _get_points(majority(votes))
    num_invalid = sum(
        opinion.is_invalid or swapped.is_invalid for opinion, swapped in zip(forward, backward, strict=True)
    )
    return PairComparison(
        points=points,
        costs=CostTotal.of([*forward, *backward]),
        is_invalid=points is None and 2 * num_invalid >= len(votes),
    )


async def _ask_in_order(
    task: Sequence[Block], first: Sequence[Block], second: Sequence[Block], options: JudgeOptions, criterion: str
) -> list[Opinion[Any]]:
    content = ["pair", criterion, [[block.to_list() for block in blocks] for blocks in (task, first, second)]]
    return await ask_all(
        options,
        content,
        prompt=lambda: pair_prompt(task, first, second, criterion),
        read=lambda text, canary: read_preference(text, canary=canary),
    )


def _get_points(winner: Winner | None) -> float:
    return 0.5 if winner is None else _POINTS[winner]


def _combine_orders(forward: Winner | None, backward: Winner | None) -> Winner | None:
    if forward is None or backward is None:
        return None
    return forward if forward == _SWAPPED[backward] else "tie"
