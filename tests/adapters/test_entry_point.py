"""A plugin that cannot be imported says so once, and stops the runs that ask for it."""

from __future__ import annotations

from pathlib import Path

import installs
import pytest

pytestmark = pytest.mark.slow
_TWICE = "import verl, importlib.metadata as m; [e.load() for e in m.entry_points(group='verl.plugins')]; print('on')"
# A run of verl's own, then one that chooses a part of the plugin by a name, then one by a section that verl ignores.
_RUNS = """
from omegaconf import OmegaConf
import verl
from verl.utils.device import auto_set_device

def starts(**keys):
    config = OmegaConf.create({"trainer": {"device": "cuda"}})
    for key, value in keys.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    try:
        auto_set_device(config)
    except Exception as cause:
        return f"{type(cause).__name__}: {cause}"
    return "starts"

print(starts(algorithm__adv_estimator="grpo", data__path="/data/agentic"))
print(starts(actor_rollout_ref__rollout__agent__default_agent_loop="env_agent"))
print(starts(data__curriculum__name="uniform"))
try:
    OmegaConf.create({"required": "${verl_agentic:plugin}"}).required
except Exception as cause:
    print(type(cause).__name__, *str(cause).split())
"""
# A package that the plugin imports and verl does not.
_NO_SPECIFIERS = "import sys\nsys.modules['packaging.specifiers'] = None\n"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> installs.Install:
    """An installation whose plugin raises while it is imported."""
    folder = tmp_path_factory.mktemp("broken")
    return installs.with_failing_module(folder, "verl_agentic/plugin.py", "the disk\nis full")


@pytest.mark.nightly
def test_a_plugin_that_raises_is_reported_once_however_often_it_is_loaded(broken: installs.Install) -> None:
    process = broken.run("-W", "ignore", "-c", _TWICE)
    assert process.returncode == 0 and process.stdout.endswith("on\n"), process.stderr
    (line,) = installs.errors_of(process)
    assert "the plugin did not load in process" in line
    assert "OSError: the disk is full (" in line and "plugin.py:1)" in line


@pytest.mark.nightly
def test_runs_that_ask_for_a_plugin_that_raises_stop_and_others_go_on(broken: installs.Install) -> None:
    process = broken.run("-W", "ignore", "-c", _RUNS)
    ours, by_name, by_section, recipe = process.stdout.strip().splitlines()[-4:]
    assert ours == "starts", process.stderr
    for stopped in (by_name, by_section):
        assert stopped.startswith("PluginError: the verl_agentic plugin did not load, got OSError: the disk is full")
    assert "the verl_agentic plugin did not load, got OSError: the disk is full" in recipe


def test_a_recipe_of_ours_says_why_the_plugin_did_not_load(broken: installs.Install) -> None:
    process = broken.run_main_ppo(platform="")
    assert process.returncode == 1 and "Started a local Ray" not in process.stderr
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "verl_agentic.base.errors.PluginError: the plugin verl_agentic did not load, got OSError: the"
    )


@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("module", ["base/errors", "verl/guard", "verl/import_hooks", "base/settings"])
def test_what_the_plugin_imports_may_fail_as_well(module: str, tmp_path: Path) -> None:
    process = installs.with_failing_module(tmp_path, f"verl_agentic/{module}.py", "bad").run(
        "-W", "ignore", "-c", _RUNS
    )
    ours, by_name, by_section, _ = process.stdout.strip().splitlines()[-4:]
    assert ours == "starts" and "OSError: bad" in by_name and "OSError: bad" in by_section, process.stderr
    assert len(installs.errors_of(process)) == 1


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    install = installs.with_failing_module(tmp_path, "verl_agentic/unused.py", "never imported")
    (tmp_path / "sitecustomize.py").write_text(_NO_SPECIFIERS)
    process = install.run("-W", "ignore", "-c", _RUNS)
    (line,) = installs.errors_of(process)
    assert "ModuleNotFoundError: import of packaging.specifiers halted" in line
    assert process.stdout.strip().splitlines()[-4:][0] == "starts", process.stderr


@pytest.mark.nightly
def test_metadata_of_an_older_installation_name_the_plugin_itself_and_still_work(tmp_path: Path) -> None:
    healthy = installs.with_failing_module(
        tmp_path, "verl_agentic/unused.py", "never imported", entry_point="verl_agentic.plugin"
    )
    process = healthy.run("-W", "ignore", "-c", "import verl, verl_agentic.plugin as p; print(p.state().failed)")
    assert process.stdout.strip().splitlines()[-1] == "{}", process.stderr
    assert not installs.errors_of(process)
