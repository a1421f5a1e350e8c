"""The kernels of torch's attention."""

from __future__ import annotations

import os

from verl_agentic.base.finding import Finding, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.credit.cudnn_attention import VARIABLE

_ENVIRONMENT = "ray_kwargs.ray_init.runtime_env.env_vars"


def attention_kernels(run: PlannedRun) -> list[Finding]:
    """Returns that torch may attend with kernels of cuDNN that gave NaN gradients on Hopper."""
    models = ("actor_rollout_ref.model", "critic.model", "model")
    if run.get("trainer.device") != "cuda" or not any(
        run.get(f"{model}.override_config.attn_implementation") == "sdpa" for model in models
    ):
        return [ok("no model attends with torch's own kernels on a GPU")]
    value = str(run.get(f"{_ENVIRONMENT}.{VARIABLE}", os.environ.get(VARIABLE, "1")))
    if value != "1":
        return [
            warn(
                f"{VARIABLE}={value}: on Hopper and Blackwell, torch 2.11 and newer attends with cuDNN, whose "
                "gradients of padded rows became NaN, and verl skips such updates",
                f"unset {VARIABLE}",
            )
        ]
    return [ok(f"attention sdpa without cuDNN's kernels ({VARIABLE}=1)")]
