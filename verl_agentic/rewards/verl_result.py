"""Data between the agent loop, verl's reward workers and the trainer: the record of an episode, and its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from verl_agentic.base.trajectory import place_rewards
from verl_agentic.rewards.component import Graded
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.score import Score, Verdicts

RowPlace = Literal["side", "earlier", "last"]
"""Place of a training row in its episode: a sub-agent's row, an earlier row, or the last row with the outcome."""
PLACE = "agentic_place"
"""Key of the place among the extra fields of a row."""
AGENT = "agentic_agent"
"""Key of the role of the row's agent among the extra fields of a row; empty for the agent of the episode."""
SAMPLE = "agentic_sample"
"""Key of the episode's record among the extra fields of a row that a reward function of the user's scores."""
PENDING = "agentic_pending"
"""Key of an episode's record and verdicts until its group is complete."""
_TURN_REWARDS, _VOID = "turn_rewards", "void_reason"


def is_result(name: str) -> bool:
    """Returns whether a number of an episode is its outcome, its score or a part of it, which void episodes lack."""
    return name in ("acc", "score") or name.startswith(("reward/", "weighted/", "solved/"))


def to_result(score: Score) -> dict[str, Any]:
    """Returns the result of a reward function for verl: `score`, every part, and the data for `read_score`."""
    return {**score.numbers, "score": score.total, _TURN_REWARDS: dict(score.turn_rewards), _VOID: score.void}


def to_pending(sample: Mapping[str, Any], verdicts: Verdicts) -> dict[str, Any]:
    """Returns the data for `from_pending`."""
    records = {
        name: graded and {**vars(graded), "turns": dict(graded.turns), "info": dict(graded.info)}
        for name, graded in verdicts.items()
    }
    return {"sample": dict(sample), "verdicts": records}


def from_pending(pending: Mapping[str, Any]) -> tuple[Sample, dict[str, Graded | None]]:
    """Returns the sample and its verdicts."""
    verdicts = {name: record and Graded(**record) for name, record in pending["verdicts"].items()}
    return Sample.from_dict(pending["sample"]), verdicts


def read_score(result: Mapping[str, Any], *, total: float) -> Score:
    """Returns the score of verl's reward worker, of a reward function of ours or of the user's own."""
    result = dict(result)
    void = result.pop(_VOID, None)
    turn_rewards = {int(turn): float(value) for turn, value in result.pop(_TURN_REWARDS, {}).items()}
    numbers = {name: float(value) for name, value in result.items() if isinstance(value, int | float)}
    acc = numbers.setdefault("acc", float(total))
    return Score(total=float(total), acc=acc, turn_rewards=turn_rewards, numbers=numbers, void=void)


def row_numbers(score: Score) -> dict[str, float]:
    """Returns the numbers of a score as rows store them."""
    return dict(score.numbers) | ({} if score.void is None else {"void": 1.0})


def score_tokens(score: Score, *, turn_ids: Sequence[int], mask: Sequence[int], place: RowPlace) -> list[float]:
    """Returns the `[R]` rewards of a row; all 0 if void.

    Args:
        turn_ids: `[R]` turn of every token.
        mask: `[R]` 1 on tokens that the policy sampled.
    """
    turns = set(turn_ids) if score.turn_rewards else set()
    is_paid = score.void is None and place != "side"
    return place_rewards(
        outcome=score.last if is_paid and place == "last" else 0.0,
        turn_rewards={t: r for t, r in score.turn_rewards.items() if t in turns} if is_paid else {},
        turn_ids=turn_ids,
        response_mask=mask,
    )
