"""Rollout engine, GPUs and CPU, which only the machine of the run can show."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun

_ENGINES = ("vllm", "sglang", "trtllm")
_ELSEWHERE = "run preflight on the machine of the run"
_TYPES = (
    "actor_rollout_ref.rollout.dtype",
    *(
        f"{section}.mixed_precision.param_dtype"
        for section in ("actor_rollout_ref.actor.fsdp_config", "critic.fsdp", "engine")
    ),
)


def machine(run: PlannedRun) -> list[Finding]:
    """Returns what the run needs and this machine does not have: engine, GPUs, packages, instructions of the CPU."""
    name, findings = str(run.get("actor_rollout_ref.rollout.name")), []
    if name in _ENGINES and name not in run.packages:
        findings.append(not_tested(f"{name} is not installed here: its version and its options", _ELSEWHERE))
    num_needed = int(run.number("trainer.n_gpus_per_node", 1))
    if run.get("trainer.device") == "cuda" and run.num_gpus_here is not None and run.num_gpus_here < num_needed:
        gpus = f"this machine has {run.num_gpus_here} of trainer.n_gpus_per_node={num_needed} GPUs"
        findings.append(not_tested(f"{gpus}: memory and speed", _ELSEWHERE))
    if run.get("trainer.device") == "cpu" and not run.has_bfloat16_here:
        findings += [
            warn(
                f"{key}={run.get(key)}, and this CPU has no instructions for it, so float32 is faster",
                "remove +agentic=bfloat16, or set float32",
            )
            for key in _TYPES
            if run.get(key) in ("bf16", "bfloat16")
        ]
    findings += [not_tested(message, _ELSEWHERE) for message in run.problems.get("attention", ())]
    return findings or [ok("the rollout engine and the processors of the run are here")]
