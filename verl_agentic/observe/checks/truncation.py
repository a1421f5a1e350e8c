"""Alarm: truncated episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import History, total
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_SHARE = Limit(warn=0.25, fail=0.5)
_ADVICE = {
    "max_tokens": "raise data.max_response_length (and agentic.limits.max_turn_tokens, max_episode_tokens), keep room "
    "for an answer (limits.answer_reserve_tokens), teach short answers (component overlong in "
    "agentic.rubric.components), or keep cut episodes out of the loss (mask_overlong)",
    "context_full": "raise actor_rollout_ref.rollout.max_model_len, or shorten old turns (agentic.compaction) and "
    "observations (limits.max_observation_tokens)",
}
"""By stop reason."""
_STOPS = tuple(f"episode/stop/{reason}" for reason in _ADVICE)
_CLIPPED, _LONGEST = "response_length/clip_ratio", "response_length/max"


def _describe_truncated_rows(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    return "", keys_of(run.valid[run.valid["stop_reason"].isin(list(_ADVICE))])


@alarm(
    reads=("episode/stop/max_tokens|response_length/clip_ratio",),
    also=("episode/stop/context_full", _LONGEST),
    details=_describe_truncated_rows,
)
def truncation(history: History, *, share: float = _SHARE.warn, window: int = 5) -> Finding | None:
    """Many episodes end because tokens ran out.

    Without stop reasons it uses verl's `response_length/clip_ratio`, if the longest response has the same length at
    every step of the window. V1 counts the rows that are as long as the batch's longest, so the ratio alone is useless.

    Args:
        share: share of the episodes.
        window: steps whose median is compared.
    """
    if "episode/stop/max_tokens" in history.names:
        shares = {name: history.level(name, window) or 0.0 for name in _STOPS}
        cut = history.level(total(_STOPS), window)
    else:
        longest = history.last(_LONGEST, window)
        shares = {"episode/stop/max_tokens": history.level(_CLIPPED, window) or 0.0}
        cut = shares["episode/stop/max_tokens"] if len(longest) == window and len(set(longest)) == 1 else None
    if cut is None:
        return None
    worst = max(shares, key=lambda name: shares[name]).rpartition("/")[2]
    return judged(
        _SHARE.judge(cut, warn=share),
        found=f"{cut:.0%} of the episodes are cut off because tokens ran out (limit {share:.0%})"
        + (f", mostly by {worst}" if cut else ""),
        evidence={"cut_share": cut, **shares},
        advice=_ADVICE[worst],
    )
