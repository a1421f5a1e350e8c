"""A run on vLLM's CPU build passes preflight where that build is installed, and its adapters are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl_runs import make_run

from verl_agentic.verl.features import is_installed

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed("vllm"), reason="vLLM is not installed; run `make test-vllm`"),
]


def test_preflight_has_nothing_against_a_run_on_vllm(tmp_path: Path) -> None:
    from verl_agentic.checks.preflight.result import judge
    from verl_agentic.verl.extensions.preflight.plan_run import plan
    from verl_agentic.verl.patching import patches

    run = make_run(tmp_path)
    run.settings = {"+agentic": "cpu_vllm", "data.max_prompt_length": 128, "data.max_response_length": 256}
    planned = plan(tmp_path, "run", [part for part in run.command() if "=" in part])
    found = judge(planned)
    assert [finding for finding in found if finding.status == "fail"] == []
    (engine,) = (finding for finding in found if finding.check == "rollout_engine")
    assert engine.status == "ok" and planned.packages["vllm"].startswith("0.28.0")
    # verl has asked for the version of vllm.
    assert "importlib.metadata:version" in {patch.symbol for patch in patches()}
