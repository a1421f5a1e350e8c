"""Line 4: has the policy lost its entropy, or left its reference?"""

from __future__ import annotations

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, Series, ends, since
from verl_agentic.diagnostics.diagnosis.verdict import Verdict, unknown

_COLLAPSED_TO = 0.1
"""Share of the entropy at the beginning that is left; less, and sampling hardly explores."""
_PPO_KL_WARN, _PPO_KL_FAIL = 0.05, 0.5
"""Of one update, in nats per token. PPO's usual targets are 0.01 to 0.05."""
_REFERENCE_KL_WARN, _REFERENCE_KL_FAIL = 1.0, 10.0
"""To the reference policy, in nats per token."""
_MIN_STEPS = 6
_KL = {
    "actor/ppo_kl": (_PPO_KL_WARN, _PPO_KL_FAIL),
    "actor/kl_loss": (_REFERENCE_KL_WARN, _REFERENCE_KL_FAIL),
    "actor/reward_kl_penalty": (_REFERENCE_KL_WARN, _REFERENCE_KL_FAIL),
}


def kl_entropy(run: RunEvidence) -> Verdict:
    """Returns the worse of two judgements: of the entropy, and of the divergences that were logged."""
    verdicts = [verdict for verdict in (_entropy(run), *(_kl(run, name) for name in _KL)) if verdict is not None]
    if not verdicts:
        return unknown(f"actor/entropy, {' and '.join(_KL)} were not logged")
    worst = max(verdicts, key=lambda verdict: ("ok", "warn", "fail").index(verdict.status))
    evidence = {name: value for verdict in verdicts for name, value in verdict.evidence.items()}
    found = "; ".join(v.found for v in verdicts) if worst.status == "ok" else worst.found
    return Verdict(status=worst.status, found=found, advice=worst.advice, evidence=evidence)


def _entropy(run: RunEvidence) -> Verdict | None:
    series = run.series("actor/entropy")
    if not series:
        return None
    before, now = ends(series)
    found = f"entropy {before:.3g} -> {now:.3g}"
    evidence = {"entropy_before": before, "entropy_now": now}
    if len(series) < _MIN_STEPS or now > _COLLAPSED_TO * before:
        return Verdict(status="ok", found=found, evidence=evidence)
    first = since(series, lambda value: value <= _COLLAPSED_TO * before)
    found = f"entropy fell to {now / before:.1%} of what it was: {found}, below {_COLLAPSED_TO:.0%} since step {first}"
    outcome = run.series("episode/acc", "critic/score/mean")
    has_gained = bool(outcome) and ends(outcome)[1] > ends(outcome)[0] + 0.05
    if has_gained:
        found += f"; the outcome rose meanwhile, {ends(outcome)[0]:.2f} -> {ends(outcome)[1]:.2f}"
    return Verdict(
        status="warn" if has_gained else "fail",
        found=found,
        advice="raise actor_rollout_ref.actor.clip_ratio_high (0.28) or entropy_coeff, lower actor.optim.lr, hold the "
        "policy with actor.use_kl_loss; go back to a checkpoint from before that step",
        evidence=evidence,
    )


def _kl(run: RunEvidence, name: str) -> Verdict | None:
    series: Series = [(step, abs(value)) for step, value in run.series(name)]
    if not series:
        return None
    warn, fail = _KL[name]
    before, now = ends(series)
    found, evidence = f"{name} {before:.3g} -> {now:.3g}", {name: now}
    if now < warn:
        return Verdict(status="ok", found=found, evidence=evidence)
    return Verdict(
        status="fail" if now >= fail else "warn",
        found=f"{found}: above {fail if now >= fail else warn:g} since step "
        f"{since(series, lambda value: value >= (fail if now >= fail else warn))}",
        advice="lower actor_rollout_ref.actor.optim.lr or ppo_epochs, raise actor.kl_loss_coef, and see the line "
        "`rollout to trainer`: stale or mismatched log-probs look the same",
        evidence=evidence,
    )
