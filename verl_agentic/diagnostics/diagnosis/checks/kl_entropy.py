"""Line 4: entropy and divergences of the policy."""

from __future__ import annotations

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, Series, ends, since
from verl_agentic.diagnostics.health.alarm import REWARD
from verl_agentic.diagnostics.thresholds import (
    ENTROPY_ADVICE,
    ENTROPY_FLOOR,
    ENTROPY_LEFT,
    ENTROPY_SOLVED,
    KL_ADVICE,
    KL_REFERENCE,
    KL_ROLLOUT,
    KL_UPDATE,
    has_risen,
)
from verl_agentic.finding import Finding, unknown

_MIN_STEPS = 6
_KL = {
    "actor/ppo_kl": ("update", KL_UPDATE),
    "batch/ref_kl": ("reference", KL_REFERENCE),
    "batch/approx_kl": ("rollout", KL_ROLLOUT),
}
_VERLS = {"batch/entropy": ("actor/entropy",), "batch/ref_kl": ("actor/kl_loss", "actor/reward_kl_penalty")}
"""verl's metrics of the same quantities, in nats per token only if the loss is a mean over tokens."""


def kl_entropy(run: RunEvidence) -> Finding:
    """Returns the worse of two findings: on the entropy, and on the logged divergences."""
    verdicts = [verdict for verdict in (_entropy(run), *(_kl(run, name) for name in _KL)) if verdict is not None]
    if not verdicts:
        return unknown(f"batch/entropy, {' and '.join(_KL)} were not logged")
    worst = max(verdicts, key=lambda verdict: ("ok", "warn", "fail").index(verdict.status))
    evidence = {name: value for verdict in verdicts for name, value in verdict.evidence.items()}
    found = "; ".join(v.found for v in verdicts) if worst.status == "ok" else worst.found
    return Finding(status=worst.status, found=found, advice=worst.advice, evidence=evidence)


def _series(run: RunEvidence, name: str) -> Series:
    """Returns a series in nats per token; verl's, where the run has no own one and verl's has this unit."""
    mode = run.setting("actor_rollout_ref.actor.loss_agg_mode")
    return run.series(name, *(_VERLS.get(name, ()) if mode in (None, "token-mean") else ()))


def _entropy(run: RunEvidence) -> Finding | None:
    series = _series(run, "batch/entropy")
    if not series:
        return None
    before, now = ends(series)
    found = f"entropy {before:.3g} -> {now:.3g}"
    evidence = {"entropy_before": before, "entropy_now": now}
    outcome = ends(run.series(*REWARD)) if run.series(*REWARD) else None
    acc = run.series("episode/acc")
    has_gained = outcome is not None and has_risen(*outcome)
    status = ENTROPY_LEFT.judge(now / before) if before > 0 else "ok"
    if status != "ok" and has_gained and outcome is not None:
        found += f"; the outcome rose meanwhile, {outcome[0]:.2f} -> {outcome[1]:.2f}"
    if has_gained or len(series) < _MIN_STEPS:
        status = "ok"
    is_gone = now <= ENTROPY_FLOOR and bool(acc) and ends(acc)[1] < ENTROPY_SOLVED
    if status == "ok" and not is_gone:
        return Finding(status="ok", found=found, evidence=evidence)
    if status == "ok":
        limit, told = ENTROPY_FLOOR, f"{ENTROPY_FLOOR:g} nats, with an outcome of {ends(acc)[1]:.2f}"
    else:
        share = ENTROPY_LEFT.fail if status == "fail" else ENTROPY_LEFT.warn
        limit, told = share * before, f"{share:.0%}"
    first = since(series, lambda value: value <= limit)
    return Finding(
        status="warn" if status == "ok" else status,
        found=f"entropy fell to {now / before:.1%} of the beginning: {found}, below {told} since step {first}",
        advice=ENTROPY_ADVICE,
        evidence=evidence,
    )


def _kl(run: RunEvidence, name: str) -> Finding | None:
    series: Series = [(step, abs(value)) for step, value in _series(run, name)]
    if not series:
        return None
    before, now = ends(series)
    found, evidence = f"{name} {before:.3g} -> {now:.3g}", {name: now}
    kind, limit = _KL[name]
    status = limit.judge(now)
    if status == "ok":
        return Finding(status="ok", found=found, evidence=evidence)
    passed = limit.fail if status == "fail" else limit.warn
    return Finding(
        status=status,
        found=f"{found}: above {passed:g} since step {since(series, lambda value: value >= passed)}",
        advice=KL_ADVICE[kind],
        evidence=evidence,
    )
