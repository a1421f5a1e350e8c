"""verl's engines with a copy of their weights, on two ranks of the CPU: a critic's target, an actor's teacher."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_runs import run_ranks

from verl_agentic.cpu.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Runs two ranks; returns their folder and what they said."""
    folder = tmp_path_factory.mktemp("copied")
    make_tiny_model(folder / "model", seed=0)
    return folder, run_ranks(["copied_ranks", str(folder)], folder)


def check(folder: Path, copy: str, *, num_facts: int) -> None:
    """All claims of both ranks hold."""
    for rank in range(2):
        facts = json.loads((folder / f"{copy}_{rank}.json").read_text())
        assert len(facts) == num_facts
        assert not [claim for claim, holds in facts.items() if not holds]


@pytest.mark.nightly
def test_the_target_follows_the_critic_stands_in_for_it_and_survives_a_restart(ran: tuple[Path, str]) -> None:
    folder, said = ran
    check(folder, "target", num_facts=16)
    assert said.count("the checkpoint has no target network") == 2, "each rank says it of the target, none of a teacher"


def test_the_teacher_follows_the_actor_stands_in_for_it_and_survives_a_restart(ran: tuple[Path, str]) -> None:
    folder, _ = ran
    check(folder, "teacher", num_facts=10)
    assert [path.name for path in sorted((folder / "saved").glob("t*_world_size_2_rank_*.pt"))] == [
        f"teacher_world_size_2_rank_{rank}.pt" for rank in range(2)
    ]
