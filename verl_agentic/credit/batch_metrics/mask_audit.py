"""Audit of a batch before training: positions of masks, rewards and log-probs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.base.finding import (
    GROUP_INCOMPLETE,
    LAST_TOKEN_UNTRAINED,
    LOG_PROBS_MISALIGNED,
    OBSERVATION_TRAINED,
    REWARD_OFF_MASK,
)
from verl_agentic.base.metric import Metric

_MIN_TOKENS = 64
"""With fewer tokens, a shift looks like noise."""
_MIN_GAP = 0.05
"""Minimum mean difference of log-probs, in nats, for which a shift is searched."""
METRICS = (
    Metric(name="audit/trained_token_frac", unit="share", per="token", rows="response tokens"),
    Metric(name="audit/untrained_row_frac", unit="share", per="row", rows="rows without padding"),
    Metric(name="audit/breaches", unit="breaches", per="step", rows="rows without padding", join="sum"),
)


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A violation and its place."""

    name: str
    """See `verl_agentic.base.finding`."""
    row: int
    """Row of the batch."""
    start: int
    """First wrong response token."""
    end: int
    """End of the contiguous span of wrong tokens, exclusive."""
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
    """Returns the breaches of a batch, at most one per kind and row.

    - `observation_trained`: mask 1 on a token that the policy did not sample.
    - `last_token_untrained`: a trained row ends with mask 0, where its outcome would lie.
    - `reward_off_mask`: a trained row has a reward on a token with mask 0, which estimators ignore.
    - `log_probs_misaligned`: a log-prob of a trained token is not finite or above 0, or the log-probs of rollout and
      trainer fit better if shifted by a token.

    Args:
        mask_BT: `[B, T]` 1 on trained tokens, 0 after a row's end.
        lengths_B: `[B]` response tokens of every row.
        observed_BT: `[B, T]` bool: tokens that the policy did not sample; None: unknown.
        rollout_log_probs_BT: `[B, T]` of the sampling policy; None: not available.
        old_log_probs_BT: `[B, T]` of the trainer's policy before the update; None: not computed.
    """
    mask_BT = mask_BT.bool()
    is_trained_B = mask_BT.any(dim=1)
    breaches = []
    if observed_BT is not None:
        wrong_BT = mask_BT & observed_BT
        breaches += _list_breaches(OBSERVATION_TRAINED, wrong_BT, "have mask 1, and the policy did not sample them")
    last_B1 = (lengths_B - 1).clamp(min=0).unsqueeze(1)
    is_cut_B = is_trained_B & ~mask_BT.gather(1, last_B1).squeeze(1)
    at_end_BT = torch.zeros_like(mask_BT).scatter_(1, last_B1, is_cut_B.unsqueeze(1))
    breaches += _list_breaches(LAST_TOKEN_UNTRAINED, at_end_BT, "end the row, and have mask 0")
    lost_BT = (rewards_BT != 0) & ~mask_BT & is_trained_B.unsqueeze(1)
    breaches += _list_breaches(REWARD_OFF_MASK, lost_BT, "have a reward and mask 0: it would be lost")
    for whose, log_probs_BT in (("rollout", rollout_log_probs_BT), ("trainer", old_log_probs_BT)):
        if log_probs_BT is not None:
            # A sum of probabilities may exceed 1 by rounding, the more so in bfloat16.
            wrong_BT = mask_BT & ~(log_probs_BT.isfinite() & (log_probs_BT <= 0.01))
            breaches += _list_breaches(LOG_PROBS_MISALIGNED, wrong_BT, f"have log-probs of the {whose} that cannot be")
    if rollout_log_probs_BT is not None and old_log_probs_BT is not None:
        breaches += _check_shift(mask_BT, rollout_log_probs_BT, old_log_probs_BT)
    return breaches


def incomplete_groups(uids: Sequence[str], sessions: Sequence[int], *, expected: Mapping[str, int]) -> list[Breach]:
    """Returns a breach for every group with missing sessions.

    Args:
        uids: `[B]` group of every row.
        sessions: `[B]` number of the row's session in its group.
        expected: how many sessions each group has.
    """
    sessions_by_uid: dict[str, set[int]] = defaultdict(set)
    first: dict[str, int] = {}
    for row, (uid, session) in enumerate(zip(uids, sessions, strict=True)):
        sessions_by_uid[uid].add(session)
        first.setdefault(uid, row)
    breaches = []
    for uid, present in sessions_by_uid.items():
        size = expected[uid]
        if len(present) < size:
            missing = sorted(set(range(size)) - present)
            message = f"group {uid} has {len(present)} of {size} sessions; missing: {missing[:8]}"
            breaches.append(Breach(name=GROUP_INCOMPLETE, row=first[uid], start=0, end=0, message=message))
    return breaches


def mask_coverage(mask_BT: Tensor, lengths_B: Tensor) -> dict[str, float]:
    """Returns the share of trained response tokens, and of rows without a trained token."""
    num_tokens, num_rows = int(lengths_B.sum()), len(lengths_B)
    return {
        "trained_token_frac": float(mask_BT.sum()) / max(num_tokens, 1),
        "untrained_row_frac": float((~mask_BT.bool().any(dim=1)).sum()) / max(num_rows, 1),
    }


def _list_breaches(name: str, wrong_BT: Tensor, fault: str) -> list[Breach]:
    """Returns a breach for the first span of wrong tokens of every row."""
    breaches = []
    for row in wrong_BT.any(dim=1).nonzero().squeeze(1).tolist():
        places = wrong_BT[row].nonzero().squeeze(1)
        start = int(places[0])
        length = int((places == torch.arange(start, start + len(places), device=places.device)).sum())
        message = f"tokens {start} to {start + length} of the response {fault}"
        breaches.append(Breach(name=name, row=row, start=start, end=start + length, message=message))
    return breaches


def _check_shift(mask_BT: Tensor, rollout_BT: Tensor, old_BT: Tensor) -> list[Breach]:
    """Returns a breach if log-probs of rollout and trainer fit much better when shifted by a token."""
    is_sound_BT = mask_BT & rollout_BT.isfinite() & old_BT.isfinite()
    both_BT = is_sound_BT[:, 1:-1] & is_sound_BT[:, :-2] & is_sound_BT[:, 2:]
    if int(both_BT.sum()) < _MIN_TOKENS:
        return []
    centre_BT = rollout_BT[:, 1:-1]
    gaps = [
        float(torch.where(both_BT, (centre_BT - moved).abs(), 0.0).sum()) / int(both_BT.sum())
        for moved in (old_BT[:, 1:-1], old_BT[:, :-2], old_BT[:, 2:])
    ]
    best = min(gaps[1:])
    if gaps[0] < _MIN_GAP or best > 0.5 * gaps[0]:
        return []
    direction = "earlier" if best == gaps[1] else "later"
    message = (
        f"log-probs of rollout and trainer differ by {gaps[0]:.3g} nats per token, and by {best:.3g} when the "
        f"trainer's of the token {direction} are taken: one of them is shifted"
    )
    return [Breach(name=LOG_PROBS_MISALIGNED, row=0, start=0, end=0, message=message)]
