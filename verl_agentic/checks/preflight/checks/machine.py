"""Rollout engine and GPUs, which only the machine of the run can show."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, not_tested, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun

_ENGINES = ("vllm", "sglang", "trtllm")
_ELSEWHERE = "run preflight on the machine of the run"


def machine(run: PlannedRun) -> list[Finding]:
    """Returns engine, GPUs and packages that the run needs and this machine does not have."""
    name, findings = str(run.get("actor_rollout_ref.rollout.name")), []
    if name in _ENGINES and name not in run.packages:
        findings.append(not_tested(f"{name} is not installed here: its version and its options", _ELSEWHERE))
    num_needed = int(run.number("trainer.n_gpus_per_node", 1))
    if run.get("trainer.device") == "cuda" and run.num_gpus_here is not None and run.num_gpus_here < num_needed:
        gpus = f"this machine has {run.num_gpus_here} of trainer.n_gpus_per_node={num_needed} GPUs"
        findings.append(not_tested(f"{gpus}: memory and speed", _ELSEWHERE))
    findings += [not_tested(message, _ELSEWHERE) for message in run.problems.get("attention", ())]
    return findings or [ok("the rollout engine and the GPUs of the run are here")]
