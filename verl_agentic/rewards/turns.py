"""Turns of an episode: their texts, their number, and bounded sums of their rewards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import StopReason
from verl_agentic.rewards.component import Graded
from verl_agentic.rewards.sample import Sample, Turn

Unit = Literal["turns", "calls", "tokens"]
_CUT_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL})
_END_TOKEN = re.compile(r"(?:<\|[^<>|\s]{1,40}\|>|</s>|<eos>|<end_of_turn>)\Z")
_LONGEST_END_TOKEN = 64
_MAX_END_TOKENS = 8


def texts(turns: Sequence[Turn], *, starts_in_reasoning: bool) -> Iterator[str]:
    """Yields what each turn says, without the special tokens that ended it and without white space around it.

    Args:
        turns: of the episode.
        starts_in_reasoning: the chat template has opened `<think>` in the prompt; it is put back.
    """
    for turn in turns:
        yield ("<think>" if starts_in_reasoning else "") + without_end_tokens(turn.text)


def without_end_tokens(text: str) -> str:
    """Returns a text without the special tokens at its end and without white space around it."""
    text = text.strip()
    for _ in range(_MAX_END_TOKENS):
        match = _END_TOKEN.search(text, max(0, len(text) - _LONGEST_END_TOKEN))
        if match is None:
            break
        text = text[: match.start()].rstrip()
    return text


def length(sample: Sample, unit: Unit) -> int:
    """Returns the number of the policy's turns, calls or tokens; raises ConfigError for another unit."""
    match unit:
        case "turns":
            return len(sample.turns)
        case "calls":
            return len(sample.calls)
        case "tokens":
            return sample.num_model_tokens
    raise ConfigError(f"unit must be turns, calls or tokens, got {unit!r}")


def is_overlong(sample: Sample, *, max_tokens: int = 0) -> bool:
    """Returns whether overlong filtering masks the loss of this episode.

    It does if a token budget truncated the episode, or if it has more than `max_tokens` sampled tokens. Estimators
    exclude a masked row from the group's mean.

    Args:
        max_tokens: maximum number of sampled tokens; 0: no limit.

    Paper: https://arxiv.org/abs/2503.14476 (section 3.4, "Overlong Filtering")
    """
    return sample.stop_reason in _CUT_OFF or 0 < max_tokens < sample.num_model_tokens


def clip_total(payments: Iterable[tuple[int, float]], *, low: float, high: float) -> Graded:
    """Returns turn rewards whose sum is that of all payments, clipped to [low, high].

    A payment counts only as far as it moves the clipped running sum.

    Args:
        payments: turn index and amount, in the order of turns.
        low: at most 0.
        high: at least 0.
    """
    total, paid = 0.0, 0.0
    turns: dict[int, float] = {}
    for turn, amount in payments:
        total += amount
        clipped = min(max(total, low), high)
        if clipped != paid:
            turns[turn] = turns.get(turn, 0.0) + clipped - paid
        paid = clipped
    return Graded(value=paid, turns=turns)
