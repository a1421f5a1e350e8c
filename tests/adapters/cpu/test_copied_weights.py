"""verl's engines with a copy of their weights, on two ranks of the CPU: a critic's target, an actor's teacher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_agentic.data.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


def run_ranks(script: str, folder: Path, *, num_facts: int) -> str:
    """Runs two ranks, whose claims must all hold, and returns what they said."""
    make_tiny_model(folder / "model", seed=0)
    done = subprocess.run(
        [sys.executable, *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"), HERE / script, folder],
        env={**os.environ, "VERL_PLATFORM": "cpu", "GOMP_SPINCOUNT": "20000", "HF_HUB_OFFLINE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    for rank in range(2):
        facts = json.loads((folder / f"facts_{rank}.json").read_text())
        assert len(facts) == num_facts
        assert not [claim for claim, holds in facts.items() if not holds]
    return done.stderr


def test_the_target_follows_the_critic_stands_in_for_it_and_survives_a_restart(tmp_path: Path) -> None:
    assert "the checkpoint has no target network" in run_ranks("target_ranks.py", tmp_path, num_facts=16)


def test_the_teacher_follows_the_actor_stands_in_for_it_and_survives_a_restart(tmp_path: Path) -> None:
    said = run_ranks("teacher_ranks.py", tmp_path, num_facts=10)
    assert "the checkpoint has no target network" not in said
    assert [path.name for path in sorted((tmp_path / "saved").glob("t*_world_size_2_rank_*.pt"))] == [
        f"teacher_world_size_2_rank_{rank}.pt" for rank in range(2)
    ]
