"""Every published system: preflight passes, and one training step of its own config on a CPU is right.

A step has the system's own environment, protocol, reward and method, and a tiny random model. The steps share two Ray
clusters. `make test-recipes` tests all systems, the other suites a sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from system_runs import Runs, judged_runs, trained_systems

from verl_agentic.adapters.sections import root_key
from verl_agentic.cli import main

pytest.importorskip("verl")
SYSTEMS = {system.name: system for system in trained_systems()}
SAMPLE = "search_r1"
CLUSTER_OF = {name: place % 2 for place, name in enumerate(SYSTEMS)}
SET_BY_A_DRY_RUN = {
    *("external_sessions", "branching.initial", "audit", "log.dir", "rubric.mask_stops", "rubric.mask_overlong"),
    "sampling.poll_interval_s",
}
"""Keys of the plugin that differ in a step on a CPU."""


def marked(name: str) -> Any:
    """Returns the parameter of a system; with several processes of pytest, each cluster runs in one."""
    own = pytest.mark.slow if name == SAMPLE else pytest.mark.recipes
    return pytest.param(name, marks=[own, pytest.mark.xdist_group(f"cluster{CLUSTER_OF[name]}")])


every_system = pytest.mark.parametrize("name", list(map(marked, SYSTEMS)))


@pytest.fixture(scope="session")
def runs_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Runs]]:
    """Returns a function of the runs of a system's cluster; the first call prepares those of all chosen systems."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    made: dict[int, Runs] = {}
    with ExitStack() as stack:

        def runs(name: str) -> Runs:
            cluster = CLUSTER_OF[name]
            if cluster not in made:
                members = [SYSTEMS[one] for one in SYSTEMS if one in chosen and CLUSTER_OF[one] == cluster]
                made[cluster] = stack.enter_context(judged_runs(tmp_path_factory.mktemp("systems"), members))
            return made[cluster]

        yield runs


@every_system
def test_preflight_passes(name: str, runs_of: Callable[[str], Runs], capsys: pytest.CaptureFixture[str]) -> None:
    config = runs_of(name).config(name)
    code = main(["preflight", *config, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, [check for check in report["checks"] if check["status"] == "fail"]


@every_system
def test_a_step_on_a_cpu_is_right(name: str, runs_of: Callable[[str], Runs]) -> None:
    step = runs_of(name).step(name)
    assert step.report.is_right, (step.report.error, step.report.stages)
    stages = {stage.name: stage for stage in step.report.stages}
    assert stages["update"].status == stages["weights"].status == "ok"
    assert step.report.proof is not None and step.report.proof.due_with_gradient > 0


@every_system
def test_the_step_has_the_config_of_the_system(name: str, runs_of: Callable[[str], Runs]) -> None:
    changed = {root_key(change.key) for change in runs_of(name).step(name).plan.translation.changes}
    of_the_plugin = {key.partition("agentic.")[2] for key in changed if key.startswith("agentic.")}
    assert of_the_plugin <= SET_BY_A_DRY_RUN
