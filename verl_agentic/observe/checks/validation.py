"""Check: success in validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.series import Series
from verl_agentic.observe.success_over_attempts import pass_at_k, pass_hat_k

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence
    from verl_agentic.observe.diagnosis.run_records import Frame

_SUCCESS = 1.0 - 1e-9
_FALLEN = 0.1
"""Maximum distance of validation below its best."""


@record_check
def validation(run: RunEvidence) -> Finding:
    """Returns the last validation's success: pass@k and pass^k, and whether it is below its best."""
    rows = run.rows
    played = rows[
        (rows["split"] == "val") & (rows["place"] == "last") & ~rows["is_void"].astype(bool) & rows["acc"].notna()
    ]
    if len(played):
        last = played[played["step"] == played["step"].max()]
        evidence = pass_k(last)
        message = f"step {last['step'].max()}: {', '.join(f'{name} {value:.3g}' for name, value in evidence.items())}"
        means = played["acc"].groupby(played["step"]).mean()
        series: Series = [(int(step), float(mean)) for step, mean in means.items()]
    else:
        name = next(iter(run.names("val-core/")), "")
        series = run.series(name)
        if not series:
            return unknown("there was no validation: neither its trajectories nor val-core/* (trainer.test_freq)")
        evidence, message = {name: series[-1][1]}, f"step {series[-1][0]}: {name} {series[-1][1]:.3g}"
    best = max(series, key=lambda point: point[1])
    if series[-1][1] >= best[1] - _FALLEN:
        return Finding(status="ok", found=message, evidence=evidence)
    message += f"; it was {best[1]:.3g} at step {best[0]}"
    advice = (
        "resume from the checkpoint of that step; if training rewards still rise, the policy exploits the training "
        "grader or rows: see the line `reward part takeover`"
    )
    return Finding(status="warn", found=message, advice=advice, evidence={**evidence, "best": best[1]})


def pass_k(played: Frame) -> dict[str, float]:
    """Returns pass@k and pass^k, as means over prompts, for k = 1, 2, 4, ... up to the attempts that every prompt has.

    See `observe.success_over_attempts`.
    """
    prompt = played["task_id"].where(played["task_id"] != "", played["uid"])
    counts = [(len(group), int((group >= _SUCCESS).sum())) for _, group in played["acc"].groupby(prompt)]
    ks = [2**power for power in range(min(n for n, _ in counts).bit_length())]
    rates = {}
    for k in ks:
        rates[f"pass@{k}"] = sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)
    for k in ks[1:]:
        rates[f"pass^{k}"] = sum(pass_hat_k(n, c, k) for n, c in counts) / len(counts)
    return rates
