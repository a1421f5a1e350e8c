"""One pool per node, on a real Ray with several worker processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from sandbox_jobs import last_object

from verl_agentic.base.errors import ConfigError

_SCRIPT = Path(__file__).parents[1] / "sandbox_jobs.py"


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Returns the observations of a job with three worker processes, and its leftovers."""
    folder = tempfile.mkdtemp(prefix="ray_", dir="/tmp")  # sockets lie there: the path must be short
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    command = [sys.executable, str(_SCRIPT), "cluster", folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    found = last_object(done.stdout)
    assert "error" not in found, found["error"]
    return found


@pytest.mark.slow
def test_all_processes_of_a_node_share_one_pool_and_its_limit(seen: dict[str, Any]) -> None:
    assert (seen["runs"], seen["actors"], seen["at_once"]) == (9, 1, 2)


@pytest.mark.slow
def test_the_pool_survives_its_workers_and_takes_back_what_they_held(seen: dict[str, Any]) -> None:
    assert (seen["deaths"], seen["actors_later"], seen["still_leased"]) == (2, 1, 0)


@pytest.mark.slow
def test_a_lease_does_all_that_a_sandbox_does_and_ends(seen: dict[str, Any]) -> None:
    gone, back, value, error = seen["lease"]
    assert (gone, back, value) == ("", "f\ntree\n", "21\n")
    assert "the lease has ended" in error


@pytest.mark.slow
def test_a_call_that_is_cancelled_frees_its_sandbox(seen: dict[str, Any]) -> None:
    assert seen["cancel_s"] < 60, "the call sleeps a minute"


@pytest.mark.slow
def test_when_the_actor_dies_one_call_fails_typed_and_the_next_gets_a_new_one(seen: dict[str, Any]) -> None:
    assert seen["after_death"] == ["SandboxError", "back\n", "back\n"]


@pytest.mark.slow
def test_the_pool_ends_with_the_job(seen: dict[str, Any]) -> None:
    assert seen["actors_left"] == []


def test_without_ray_the_way_out_is_told() -> None:
    from verl_agentic.verl.extensions.node_pool import NodePool

    with pytest.raises(ConfigError, match=r"ray\.init"):
        NodePool("local", at_least="none")
