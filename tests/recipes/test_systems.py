"""Every published system: preflight passes, and one training step of its own config on a CPU is right.

A step has the system's own environment, protocol, reward and method, and a tiny random model. The steps run in forks of
two processes. `make test-recipes` tests all systems, the other suites a sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from system_runs import Runs, judged_runs, trained_systems

from verl_agentic.cli import main
from verl_agentic.verl.sections import root_key

pytest.importorskip("verl")
SYSTEMS = {system.name: system for system in trained_systems()}
SAMPLE = "search_r1"
SET_BY_A_DRY_RUN = {
    *("external_sessions", "branching.initial", "audit", "log.dir", "rubric.mask_stops", "rubric.mask_overlong"),
    "sampling.poll_interval_s",
}
"""Keys of the plugin that differ in a step on a CPU."""


MARKS = {name: pytest.mark.slow if name == SAMPLE else pytest.mark.recipes for name in SYSTEMS}
every_system = pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in MARKS.items()])


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Yields the runs of all chosen systems."""
    items: list[Any] = request.session.items
    chosen = {item.callspec.params["name"] for item in items if item.path == request.path}
    members = [SYSTEMS[name] for name in SYSTEMS if name in chosen]
    with judged_runs(tmp_path_factory.mktemp("systems"), members) as made:
        yield made


@every_system
def test_preflight_passes(name: str, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    config = runs.config(name)
    code = main(["preflight", *config, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, [check for check in report["checks"] if check["status"] == "fail"]


@every_system
def test_a_step_on_a_cpu_is_right(name: str, runs: Runs) -> None:
    step = runs.step(name)
    assert step.report.is_right, (step.report.error, step.report.stages)
    stages = {stage.name: stage for stage in step.report.stages}
    assert stages["update"].status == stages["weights"].status == "ok"
    assert step.report.proof is not None and step.report.proof.due_with_gradient > 0


@every_system
def test_the_step_has_the_config_of_the_system(name: str, runs: Runs) -> None:
    changed = {root_key(change.key) for change in runs.step(name).plan.translation.changes}
    of_the_plugin = {key.partition("agentic.")[2] for key in changed if key.startswith("agentic.")}
    assert of_the_plugin <= SET_BY_A_DRY_RUN
