"""The check `overhead`: seconds of generation with `env_agent` against verl's `tool_agent`, on the same answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from _gpu_check import Check

_SCRIPT = Path(__file__).resolve().parents[1] / "rollout_path.py"


def run(check: Check) -> None:
    command = [sys.executable, str(_SCRIPT), "--device", check.device, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    check.note(figures)
    check.judge("seconds of generation, env_agent over tool_agent", figures["gen_vs_tool_agent"], max_value=1.0)
