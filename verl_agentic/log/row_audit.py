"""The rules of a training row: its mask, rewards, log-probs and texts.

The agent loop, the trainer, exports and `diagnose` check rows by them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verl_agentic.base.finding import LAST_TOKEN_UNTRAINED, LOG_PROBS_MISALIGNED, OBSERVATION_TRAINED, REWARD_OFF_MASK
from verl_agentic.base.trajectory import find_trained_observation
from verl_agentic.base.types import Segment
from verl_agentic.log.secrets import WITHHELD, Decode

_COLUMNS = ("response_mask", "turn_ids", "rollout_log_probs", "token_rewards", "old_log_probs", "advantages")
_MAY_BE_EMPTY = {"turn_ids", "rollout_log_probs", "old_log_probs", "advantages"}
_MAX_LOG_PROB = 0.01
"""A sum of probabilities may exceed 1 by rounding, the more so in bfloat16."""
_TRAINED = re.compile(b"\x01+")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SHOWN_CHARS = 60


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A violation of a rule."""

    name: str
    """See `verl_agentic.base.finding`."""
    message: str


def audit_row(
    mask: np.ndarray, rewards: np.ndarray, segments: Iterable[Segment], log_probs: Mapping[str, np.ndarray]
) -> list[Breach]:
    """Returns the breaches of a row, at most one per kind; none of a row without a trained token.

    - `observation_trained`: mask 1 on a token that the policy did not sample.
    - `last_token_untrained`: the row ends with mask 0, where its outcome would lie.
    - `reward_off_mask`: a reward on a token with mask 0, which estimators ignore.
    - `log_probs_misaligned`: a log-prob of a trained token is not finite or above 0.

    Args:
        mask: `[R]` bool: true on trained tokens.
        rewards: `[R]` reward of every token.
        segments: spans of one author; none: unknown.
        log_probs: name -> `[R]` log-probs of the tokens.
    """
    if not mask.any():
        return []
    breaches = []
    if observation := find_trained_observation(mask.tobytes(), segments):
        breaches.append(Breach(name=OBSERVATION_TRAINED, message=observation))
    if not mask[-1]:
        message = f"the last {int(np.argmax(mask[::-1]))} of {len(mask)} tokens have mask 0"
        breaches.append(Breach(name=LAST_TOKEN_UNTRAINED, message=message))
    lost = np.flatnonzero((rewards != 0) & ~mask)
    if len(lost):
        message = f"a reward of {rewards[lost].sum():.4g} begins on token {lost[0]}, which has mask 0: it would be lost"
        breaches.append(Breach(name=REWARD_OFF_MASK, message=message))
    for name, values in log_probs.items():
        wrong = np.flatnonzero(mask & ~(np.isfinite(values) & (values <= _MAX_LOG_PROB)))
        if len(wrong):
            message = f"{name} of token {wrong[0]} is {values[wrong[0]]:g}, no log-prob"
            breaches.append(Breach(name=LOG_PROBS_MISALIGNED, message=message))
            break
    return breaches


def measure_shifts(mask: np.ndarray, rollout: np.ndarray, trainer: np.ndarray) -> np.ndarray:
    """Returns `[4]` sums of a row, which add up over rows.

    The first one is the number of tokens between trained tokens. The others are the distances of their log-probs of the
    rollout from the trainer's of the same token, of the token before, and of the token after, in nats.
    """
    is_sound = mask & np.isfinite(rollout) & np.isfinite(trainer)
    is_inner = is_sound[1:-1] & is_sound[:-2] & is_sound[2:]
    centre = rollout[1:-1][is_inner]
    neighbours = (trainer[1:-1], trainer[:-2], trainer[2:])
    return np.array([is_inner.sum(), *(abs(centre - values[is_inner]).sum() for values in neighbours)])


def describe_shift(sums: np.ndarray, *, min_tokens: int, min_gap: float, max_ratio: float) -> str:
    """Describes log-probs of rollout and trainer that fit much better when shifted by a token; empty if they do not.

    Args:
        sums: of `measure_shifts`.
        min_tokens: with fewer tokens, a shift looks like noise.
        min_gap: minimum mean distance for which a shift is searched, in nats.
        max_ratio: maximum distance of a shift, as a share of the distance without it.
    """
    if sums[0] < min_tokens:
        return ""
    gap, *shifted = sums[1:] / sums[0]
    best = min(shifted)
    if gap < min_gap or best > max_ratio * gap:
        return ""
    direction = "earlier" if best == shifted[0] else "later"
    return (
        f"log-probs of rollout and trainer differ by {gap:.3g} nats per token, and by {best:.3g} when the "
        f"trainer's of the token {direction} are taken: one of them is shifted"
    )


def find_wrong_lengths(record: Mapping[str, Any]) -> str:
    """Returns the columns of a logged row whose length differs from the response; empty without one."""
    length = len(record["response_ids"])
    sizes = {name: len(record[name] if record.get(name) is not None else ()) for name in _COLUMNS}
    wrong = [
        f"{name} has {size}" for name, size in sizes.items() if size != length and (size or name not in _MAY_BE_EMPTY)
    ]
    return f"the response has {length} tokens, but {', '.join(wrong)}" if wrong else ""


def find_foreign_text(
    ids: Sequence[int],
    *,
    mask: Sequence[int],
    turn_ids: Sequence[int],
    texts: Mapping[int, str],
    decode: Decode,
    normalise: Callable[[str], str] = str,
) -> str:
    """Returns the first trained tokens that the policy did not write; empty without any.

    Each run of trained tokens of one turn must decode to a part of that turn's text, apart from incomplete characters
    at its ends. Runs with an id that the log withholds are left out.

    Args:
        texts: turn -> its text; turns without a text (summaries, those of sub-agents) are not compared.
        decode: token ids to text, special tokens included.
        normalise: takes out of both texts what may differ.
    """
    for start, end in _iter_trained_spans(mask, turn_ids):
        turn, span = turn_ids[start], ids[start:end]
        if turn not in texts or WITHHELD in span:
            continue
        decoded = decode(span).strip(_REPLACEMENT)
        if normalise(decoded) not in normalise(texts[turn]):
            return (
                f"tokens {start} to {end} of turn {turn} are trained on and decode to {decoded[:_SHOWN_CHARS]!r}, "
                f"which the policy did not write in {texts[turn][:_SHOWN_CHARS]!r}"
            )
    return ""


def _iter_trained_spans(mask: Sequence[int], turn_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields the spans `[start, end)` of contiguous tokens with mask 1 of one turn."""
    for run in _TRAINED.finditer(bytes(mask)):
        start, stop = run.span()
        while start < stop:
            end = bisect_right(turn_ids, turn_ids[start], start, stop)
            yield start, end
            start = end
