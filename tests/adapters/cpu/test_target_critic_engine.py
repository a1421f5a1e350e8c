"""verl's engine of a critic, with a target network, on two ranks of the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_agentic.data.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow
RANKS = Path(__file__).with_name("target_ranks.py")


def test_the_target_follows_the_critic_stands_in_for_it_and_survives_a_restart(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model", seed=0)
    done = subprocess.run(
        [sys.executable, *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"), RANKS, tmp_path],
        env={**os.environ, "VERL_PLATFORM": "cpu", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    for rank in range(2):
        facts = json.loads((tmp_path / f"facts_{rank}.json").read_text())
        assert len(facts) == 16
        assert not [claim for claim, holds in facts.items() if not holds]
    assert "the checkpoint has no target network" in done.stderr
