"""Line 14: attempts at reward hacking, and their rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, ends, keys_of
from verl_agentic.diagnostics.thresholds import HACKING, HACKING_ADVICE
from verl_agentic.finding import Finding, unknown

_PREFIX = "episode/hacking/"


def reward_hacking(run: RunEvidence) -> Finding:
    """Returns the share of recent episodes with an attempt, by kind, and their rewards compared with the others."""
    valid = run.valid
    if not len(valid):
        return _from_metrics(run)
    has = valid["hacking"].map(len) > 0
    share = float(has.mean())
    kinds = Counter(kind for kinds in valid["hacking"] for kind in kinds)
    evidence = {"share": share, **{kind: count / len(valid) for kind, count in kinds.items()}}
    found = f"{share:.1%} of {len(valid)} recent episodes attempt it"
    found += f" ({', '.join(f'{kind} {count}' for kind, count in kinds.most_common())})" if kinds else ""
    with_, without = valid["reward"][has].mean(), valid["reward"][~has].mean()
    if kinds and with_ == with_ and without == without:
        evidence |= {"reward_with": float(with_), "reward_without": float(without)}
        found += f"; their mean reward is {with_:.3g}, that of the others {without:.3g}"
    return _judged(share, found, kinds, evidence, look_at=keys_of(valid[has]))


def _from_metrics(run: RunEvidence) -> Finding:
    series = run.series(f"{_PREFIX}any")
    if not series:
        return unknown(f"attempts were not counted: neither trajectories of env_agent nor {_PREFIX}any")
    share = ends(series)[1]
    counts = {name.removeprefix(_PREFIX): ends(run.series(name))[1] for name in run.names(_PREFIX)}
    counts.pop("any", None)
    found = f"{share:.1%} of recent episodes attempt it"
    found += "".join(f"; {kind} {count:.2g} an episode" for kind, count in counts.items() if count)
    return _judged(share, found, counts, {"share": share, **counts})


def _judged(
    share: float, found: str, kinds: Mapping[str, float], evidence: dict[str, float], look_at: tuple[str, ...] = ()
) -> Finding:
    if share < HACKING:
        return Finding(status="ok", found=found, evidence=evidence)
    advice = HACKING_ADVICE.get(max(kinds, key=lambda kind: kinds[kind], default=""), "")
    return Finding(status="warn", found=found, advice=advice, evidence=evidence, look_at=look_at)
