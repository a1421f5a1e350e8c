"""Line 2: truncated episodes."""

from __future__ import annotations

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, ends, keys_of, recent_mean
from verl_agentic.diagnostics.thresholds import TRUNCATED, TRUNCATED_ADVICE
from verl_agentic.finding import Finding, unknown

CUT = tuple(TRUNCATED_ADVICE)


def length_truncation(run: RunEvidence) -> Finding:
    """Returns the share of episodes that ended at a token budget."""
    shares, look_at = _shares(run)
    if shares is None:
        return unknown(
            "no stop reasons are known (no trajectories, no episode/stop/*), and response_length/max cannot be "
            "compared with data.max_response_length; response_length/clip_ratio only counts responses as long as the "
            "longest of their batch"
        )
    cut = sum(shares.values())
    lengths = run.series("episode/model_tokens", "response_length/mean")
    found = f"{cut:.0%} of recent episodes were cut off"
    if cut:
        found += f" ({', '.join(f'{name} {share:.0%}' for name, share in shares.items() if share)})"
    evidence = {"cut_share": cut, **shares}
    if lengths:
        evidence["length_before"], evidence["length_now"] = ends(lengths)
        found += f"; mean length {evidence['length_before']:.0f} -> {evidence['length_now']:.0f} tokens"
    status = TRUNCATED.judge(cut)
    if status == "ok":
        return Finding(status="ok", found=found, evidence=evidence)
    worst = max(shares, key=lambda name: shares[name])
    return Finding(status=status, found=found, advice=TRUNCATED_ADVICE[worst], evidence=evidence, look_at=look_at)


def _shares(run: RunEvidence) -> tuple[dict[str, float] | None, tuple[str, ...]]:
    valid = run.valid
    if len(valid) and (valid["stop_reason"] != "").any():
        shares = {name: float((valid["stop_reason"] == name).mean()) for name in CUT}
        return shares, keys_of(valid[valid["stop_reason"].isin(CUT)])
    budget = run.setting("data.max_response_length")
    if len(valid) and budget:
        is_full = valid["num_response_tokens"] >= budget
        return {"max_tokens": float(is_full.mean())}, keys_of(valid[is_full])
    reasons = {name: run.series(f"episode/stop/{name}") for name in CUT}
    if any(reasons.values()):
        return {name: recent_mean(series) for name, series in reasons.items() if series}, ()
    longest, ratio = run.series("response_length/max"), run.series("response_length/clip_ratio")
    if longest and ratio and budget:
        # verl counts responses as long as the longest one of the batch.
        return {"max_tokens": recent_mean(ratio) if ends(longest)[1] >= budget else 0.0}, ()
    return None, ()
