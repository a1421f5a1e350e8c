"""The check `overhead`: seconds of generation with `env_agent` against verl's `tool_agent`, on the same answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from _gpu_check import Check

_SCRIPT = Path(__file__).resolve().parents[1] / "rollout_path.py"


def run(check: Check) -> None:
    flags = ["--only", "engine.local"] if check.is_gpu else ["--quick"]
    done = subprocess.run(
        [sys.executable, _SCRIPT, "--device", check.device, *flags], stdout=subprocess.PIPE, text=True
    )
    if not done.stdout:
        raise RuntimeError(f"{_SCRIPT.name} ended with exit code {done.returncode} and no result; see the log")
    measured = json.loads(done.stdout.splitlines()[-1])
    check.note({**measured["figures"], **measured["ratios"]})
    ratios = {name: value for name, value in measured["ratios"].items() if name.startswith("gen_vs_tool_agent")}
    for name, value in ratios.items():
        check.judge(f"{name}: seconds of env_agent over tool_agent", value, max_value=1.0, only_gpu=True)
