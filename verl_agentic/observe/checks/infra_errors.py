"""Alarm: infrastructure failures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import History, first_of
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_SHARE = Limit(warn=0.05, fail=0.2)
_NAMES = ("episode/void", "credit/void_session_frac", "batch/void_session_frac")
_VOID = first_of(*_NAMES)
_ADVICE = {
    "env": "see the `error` of these trajectories (verl-agentic view); test the part alone (verl-agentic env validate, "
    "verl-agentic sandbox backends); allow more retries (agentic.limits.max_retries)",
    "sandbox": "check sandbox limits and the machine's load (verl-agentic doctor); run fewer episodes at once "
    "(actor_rollout_ref.rollout.agent.num_workers, data.train_batch_size)",
    "policy": "the generation server fails: see its log; lower actor_rollout_ref.rollout.gpu_memory_utilization and "
    "max_num_seqs",
    "scoring": "a scorer fails: see agentic.rubric.components and its deadline (timeout_s)",
    "timeout": "see time/*, tool_time/* and the tools' own deadlines (timeout_s); allow more time: "
    "agentic.limits.turn_timeout_s or episode_timeout_s",
    "cancelled": "the server aborted episodes and did not resume them: see partial rollouts in trainer.v1 and its log",
}
"""By the failed part, or the stop reason; `env` if neither is known."""
_MAX_CHARS = 120


def _describe_void_rows(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    void = run.recent[run.recent["is_void"].astype(bool)]
    errors = Counter(error.split("\n", 1)[0][:_MAX_CHARS] for error in void["error"] if error)
    return "".join(f"{count}x: {error}" for error, count in errors.most_common(1)), keys_of(void)


@alarm(
    reads=("|".join(_NAMES),),
    also=("episode/error/*", "episode/stop/timeout", "episode/stop/cancelled", "episode/retries"),
    details=_describe_void_rows,
)
def infra_errors(
    history: History, *, void: float = _SHARE.warn, retries: float = 0.5, window: int = 5
) -> Finding | None:
    """Many episodes are void or retried: environment, sandbox, server or scorer fail, or time runs out.

    Args:
        void: share of episodes. Slow and hard tasks are void more often, so that the remaining episodes are biased.
        retries: per episode.
        window: steps whose median is compared.
    """
    share, again = history.level(_VOID, window), history.level("episode/retries", window) or 0.0
    if share is None:
        return None
    kinds = {name: history.level(name, window) or 0.0 for name in history.matching("episode/error/*")}
    stops = ("episode/stop/timeout", "episode/stop/cancelled")
    kinds |= {name: value for name in stops if (value := history.level(name, window)) is not None}
    listed = ", ".join(f"{name.split('/', 1)[1]} {value:.1%}" for name, value in kinds.items() if value)
    worst = max(kinds, key=lambda name: kinds[name], default="")
    status = _SHARE.judge(share, warn=void)
    if status == "ok" and again >= retries:
        status, message = "warn", f"{again:.2g} retries per episode (limit {retries:g})"
    else:
        message = f"{share:.1%} of the episodes are void (limit {void:.0%})"
    return judged(
        status,
        found=f"{message}; by cause: {listed or 'not known'}" if share or again else message,
        evidence={"void_share": share, "retries": again, **kinds},
        advice=_ADVICE.get(worst.rpartition("/")[2] if listed else "", _ADVICE["env"]),
    )
