"""Line 8: infrastructure failures."""

from __future__ import annotations

from collections import Counter

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, keys_of, recent_mean
from verl_agentic.diagnostics.thresholds import VOID, void_advice
from verl_agentic.finding import Finding, unknown


def infrastructure(run: RunEvidence) -> Finding:
    """Returns the share of void episodes, by stop reason and by cause."""
    recent = run.recent
    if not len(recent):
        return _from_metrics(run)
    void = recent[recent["is_void"].astype(bool)]
    share = len(void) / len(recent)
    reasons = Counter(void["stop_reason"])
    errors = Counter(error.split("\n", 1)[0][:120] for error in void["error"] if error)
    found = f"{share:.1%} of {len(recent)} recent episodes are void"
    found += f" ({', '.join(f'{name} {count}' for name, count in reasons.most_common())})" if share else ""
    found += f"; {errors.most_common(1)[0][1]}x: {errors.most_common(1)[0][0]}" if errors else ""
    evidence = {"void_share": share, "reasons": dict(reasons), "errors": dict(errors.most_common(5))}
    return _judged(share, found, void_advice(reasons), evidence, look_at=keys_of(void))


def _from_metrics(run: RunEvidence) -> Finding:
    void = run.series("episode/void", "credit/void_session_frac", "batch/void_session_frac")
    if not void:
        return unknown("there are neither trajectories nor episode/void")
    kinds = {name: recent_mean(run.series(name)) for name in run.names("episode/error/")}
    found = f"{recent_mean(void):.1%} of recent episodes are void"
    found += "".join(f"; {name} {share:.1%}" for name, share in kinds.items() if share)
    evidence = {"void_share": recent_mean(void), **kinds}
    return _judged(recent_mean(void), found, void_advice(kinds), evidence)


def _judged(share: float, found: str, advice: str, evidence: dict, look_at: tuple[str, ...] = ()) -> Finding:
    status = VOID.judge(share)
    if status == "ok":
        return Finding(status="ok", found=found, evidence=evidence)
    return Finding(status=status, found=found, advice=advice, evidence=evidence, look_at=look_at)
