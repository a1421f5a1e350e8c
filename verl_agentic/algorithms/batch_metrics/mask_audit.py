"""The audit of a batch before it is trained on: masks, rewards and log-probs lie where they must."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from verl_agentic.finding import (
    GROUP_INCOMPLETE,
    LAST_TOKEN_UNTRAINED,
    LOG_PROBS_MISALIGNED,
    OBSERVATION_TRAINED,
    REWARD_OFF_MASK,
)

Tensor = torch.Tensor
_MIN_TOKENS = 64
"""Of fewer tokens, a shift cannot be told from noise."""
_MIN_GAP = 0.05
"""Mean difference of log-probs below which a shift by a token is not looked for, in nats."""


@dataclass(frozen=True, kw_only=True)
class Breach:
    """Something that must not be, and where."""

    name: str
    """See `verl_agentic.finding`."""
    row: int
    """Of the batch."""
    start: int
    """First response token that is wrong."""
    end: int
    """One past the last of them that stand together."""
    message: str


def audit(
    *,
    mask_BT: Tensor,
    lengths_B: Tensor,
    rewards_BT: Tensor,
    observed_BT: Tensor | None = None,
    rollout_log_probs_BT: Tensor | None = None,
    old_log_probs_BT: Tensor | None = None,
) -> list[Breach]:
    """Returns what is wrong with a batch, one breach of a kind for every row that has it.

    - `observation_trained`: mask 1 on a token that the policy did not sample.
    - `last_token_untrained`: a row that is trained on ends with mask 0: its outcome would lie there.
    - `reward_off_mask`: a reward on a token with mask 0, where estimators lose it; in a row that is trained on.
    - `log_probs_misaligned`: a log-prob of a trained token that is not finite or is above 0, or those of rollout and
      trainer fit better when shifted by a token.

    Args:
        mask_BT: `[B, T]` 1 on tokens that are trained on, 0 behind a row's end.
        lengths_B: `[B]` response tokens of every row.
        rewards_BT: `[B, T]`.
        observed_BT: `[B, T]` bool: tokens that the policy did not sample, where that is known; None: of no row.
        rollout_log_probs_BT: `[B, T]` of the policy that sampled; None: it gave none.
        old_log_probs_BT: `[B, T]` of the trainer's policy before the update; None: not computed.
    """
    mask_BT = mask_BT.bool()
    is_trained_B = mask_BT.any(dim=1)
    breaches = []
    if observed_BT is not None:
        wrong_BT = mask_BT & observed_BT
        breaches += _found(OBSERVATION_TRAINED, wrong_BT, "have mask 1, and the policy did not sample them")
    last_B1 = (lengths_B - 1).clamp(min=0).unsqueeze(1)
    is_cut_B = is_trained_B & ~mask_BT.gather(1, last_B1).squeeze(1)
    at_end_BT = torch.zeros_like(mask_BT).scatter_(1, last_B1, is_cut_B.unsqueeze(1))
    breaches += _found(LAST_TOKEN_UNTRAINED, at_end_BT, "end the row, and have mask 0")
    lost_BT = (rewards_BT != 0) & ~mask_BT & is_trained_B.unsqueeze(1)
    breaches += _found(REWARD_OFF_MASK, lost_BT, "have a reward and mask 0: it would be lost")
    for whose, log_probs_BT in (("rollout", rollout_log_probs_BT), ("trainer", old_log_probs_BT)):
        if log_probs_BT is not None:
            # A sum of probabilities may exceed 1 by rounding, the more so in bfloat16.
            wrong_BT = mask_BT & ~(log_probs_BT.isfinite() & (log_probs_BT <= 0.01))
            breaches += _found(LOG_PROBS_MISALIGNED, wrong_BT, f"have log-probs of the {whose} that cannot be")
    if rollout_log_probs_BT is not None and old_log_probs_BT is not None:
        breaches += _shifted(mask_BT, rollout_log_probs_BT, old_log_probs_BT)
    return breaches


def incomplete_groups(uids: Sequence[str], sessions: Sequence[int], *, expected: Mapping[str, int]) -> list[Breach]:
    """Returns the groups of which sessions are missing.

    Args:
        uids: `[B]` group of every row.
        sessions: `[B]` number of the row's session in its group.
        expected: how many sessions each group has.
    """
    found: dict[str, set[int]] = defaultdict(set)
    first: dict[str, int] = {}
    for row, (uid, session) in enumerate(zip(uids, sessions, strict=True)):
        found[uid].add(session)
        first.setdefault(uid, row)
    breaches = []
    for uid, present in found.items():
        size = expected[uid]
        if len(present) < size:
            missing = sorted(set(range(size)) - present)
            message = f"group {uid} has {len(present)} of {size} sessions; missing: {missing[:8]}"
            breaches.append(Breach(name=GROUP_INCOMPLETE, row=first[uid], start=0, end=0, message=message))
    return breaches


def mask_coverage(mask_BT: Tensor, lengths_B: Tensor) -> dict[str, float]:
    """Returns the share of response tokens that are trained on, and of rows of which no token is."""
    num_tokens, num_rows = int(lengths_B.sum()), len(lengths_B)
    return {
        "trained_token_frac": float(mask_BT.sum()) / max(num_tokens, 1),
        "untrained_row_frac": float((~mask_BT.bool().any(dim=1)).sum()) / max(num_rows, 1),
    }


def _found(name: str, wrong_BT: Tensor, what: str) -> list[Breach]:
    """Returns a breach for every row with a token that is wrong: its first span of such tokens."""
    breaches = []
    for row in wrong_BT.any(dim=1).nonzero().squeeze(1).tolist():
        places = wrong_BT[row].nonzero().squeeze(1)
        start = int(places[0])
        length = int((places == torch.arange(start, start + len(places), device=places.device)).sum())
        message = f"tokens {start} to {start + length} of the response {what}"
        breaches.append(Breach(name=name, row=row, start=start, end=start + length, message=message))
    return breaches


def _shifted(mask_BT: Tensor, rollout_BT: Tensor, old_BT: Tensor) -> list[Breach]:
    """Returns a breach when log-probs of rollout and trainer fit much better with one of them moved by a token."""
    is_sound_BT = mask_BT & rollout_BT.isfinite() & old_BT.isfinite()
    both_BT = is_sound_BT[:, 1:-1] & is_sound_BT[:, :-2] & is_sound_BT[:, 2:]
    if int(both_BT.sum()) < _MIN_TOKENS:
        return []
    here = rollout_BT[:, 1:-1]
    gaps = [
        float(torch.where(both_BT, (here - moved).abs(), 0.0).sum()) / int(both_BT.sum())
        for moved in (old_BT[:, 1:-1], old_BT[:, :-2], old_BT[:, 2:])
    ]
    best = min(gaps[1:])
    if gaps[0] < _MIN_GAP or best > 0.5 * gaps[0]:
        return []
    by = "earlier" if best == gaps[1] else "later"
    message = (
        f"log-probs of rollout and trainer differ by {gaps[0]:.3g} nats per token, and by {best:.3g} when the "
        f"trainer's of the token {by} are taken: one of them is shifted"
    )
    return [Breach(name=LOG_PROBS_MISALIGNED, row=0, start=0, end=0, message=message)]
