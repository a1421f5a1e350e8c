"""Check: the time of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.series import ends, recent_mean

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_LEDGER, _TIMERS = "time/", "timing_s/"
_MOSTLY = 0.5
_SLOWED = 2.0
_ADVICE = {
    "poll": "the trainer sleeps while samples are ready: lower agentic.sampling.poll_interval_s",
    "tool": "tools are slow: see tool_time/*/p95_s, run more of them in parallel, give them deadlines (timeout_s)",
    "env": "environments are slow: move slow code of `step` to a thread, process or pool",
    "env_start": "starting environments is slow: a pool keeps sandboxes warm (docs/sandboxes.md)",
    "reward": "scoring is slow: raise actor_rollout_ref.rollout.agent.num_workers for a rubric, or reward.num_workers "
    "for a function, or use a cheaper component",
    "checkpoint": "checkpoints are slow: raise trainer.save_freq",
    "validation": "validation is slow: raise trainer.test_freq",
}


@record_check
def time_spent(run: RunEvidence) -> Finding:
    """Returns the largest shares of a step's time, and whether steps became slower."""
    steps = run.series("timing_s/step", "perf/time_per_step")
    parts = _average_parts(run)
    if not steps or not parts:
        return unknown("times were not logged: neither time/*_s nor timing_s/* with timing_s/step")
    total = recent_mean(steps)
    shares = {name: value / total for name, value in parts.items() if total}
    listed = sorted(shares.items(), key=lambda pair: -pair[1])[:4]
    message = f"{total:.3g} s a step: {', '.join(f'{name} {share:.0%}' for name, share in listed)}"
    evidence = {"step_s": total, **{f"share/{name}": share for name, share in shares.items()}}
    slowest = [(recent_mean(run.series(name)), name.split("/")[1]) for name in run.names("tool_time/") if "p95" in name]
    if slowest:
        message += f"; slowest tool {max(slowest)[1]}, p95 {max(slowest)[0]:.3g} s"
    top = listed[0][0] if listed else ""
    if top in _ADVICE and shares[top] > _MOSTLY:
        return Finding(status="warn", found=message, advice=_ADVICE[top], evidence=evidence)
    before, now = ends(steps)
    if len(steps) >= 6 and now > _SLOWED * before:
        message += f"; steps became slower, {before:.3g} -> {now:.3g} s"
        longer, later = ends(run.series("episode/response_tokens", "response_length/mean") or [(0, 1.0)])
        message += f" (response length {longer:.0f} -> {later:.0f})" if later > longer else ""
        advice = f"{top} is most of it: longer responses cost more; else see the lines `memory growth`, `infra errors`"
        return Finding(status="warn", found=message, advice=advice, evidence=evidence)
    return Finding(status="ok", found=message, evidence=evidence)


def _average_parts(run: RunEvidence) -> dict[str, float]:
    for prefix in (_LEDGER, _TIMERS):
        names = [name for name in run.names(prefix) if name not in ("timing_s/step", "time/step_s")]
        if prefix == _LEDGER:
            names = [name for name in names if name.endswith("_s")]
        if names:
            # A timer that ran in some steps only (testing, checkpoints) counts by its average.
            count = max(1, min(10, len(run.metrics)))
            rows = run.metrics[-count:]
            sums = {name: sum(float(row.get(name) or 0.0) for row in rows) / count for name in names}
            return {name.removeprefix(prefix).removesuffix("_s"): value for name, value in sums.items()}
    return {}
