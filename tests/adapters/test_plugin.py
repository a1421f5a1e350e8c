"""`import verl` registers everything, or says loudly why not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import first_imports
import installs
import pytest
from packaging.specifiers import SpecifierSet

from verl_agentic import plugin
from verl_agentic.base.errors import PluginError
from verl_agentic.plugin import ADAPTERS, PluginState

_FIRST = (
    "verl",
    "verl.trainer.main_ppo",
    "verl.single_controller.ray",
    "verl.utils.distributed",
    "verl.workers.engine",
    "verl.workers.rollout.replica",
    "verl.experimental.agent_loop",
    "verl_agentic.plugin",
    "verl_agentic.verl.extensions.cpu.cpu_engine",
    "verl_agentic.verl.rollout.agent_loop",
)
# A recipe of nobody's, then one that asks for an adapter that is whole, then one that asks for the one that failed.
_VANILLA = """
import copy
from hydra import compose, initialize_config_module
import verl, verl.experimental.agent_loop
from verl.trainer import main_ppo
from verl_agentic.plugin import state

with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose("ppo_trainer", ["actor_rollout_ref.rollout.name=vllm"])
    theirs = compose("ppo_trainer", ["actor_rollout_ref.rollout.name=vllm", "algorithm.adv_estimator=grpo_shuffled"])
before = copy.deepcopy(config)
assert "rollout.agent_loop" in state().failed
main_ppo.auto_set_device(config)
before.trainer.device = config.trainer.device  # verl's own doing
assert config == before
main_ppo.auto_set_device(theirs)
assert "extensions.methods.trainer.shuffled_rewards" in state().loaded
print("both went on")
config.actor_rollout_ref.rollout.agent.default_agent_loop = "env_agent"
main_ppo.auto_set_device(config)
"""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """First import -> what is registered afterwards."""
    install = installs.Install(tmp_path_factory.mktemp("healthy"))
    process = install.run("-W", "ignore", first_imports.__file__, *_FIRST, VERL_PLATFORM="cpu")
    found = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(_FIRST), process.stderr
    return {order["first"]: order for order in found}


@pytest.fixture(scope="module")
def failing_adapter(tmp_path_factory: pytest.TempPathFactory) -> installs.Install:
    """An installation whose agent loop raises."""
    return installs.with_failing_adapter(tmp_path_factory.mktemp("adapter"), "rollout.agent_loop", "the disk\nis full")


@pytest.mark.sample(3, slow=1)
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.slow
@pytest.mark.verl
def test_import_verl_registers_everything_whatever_is_imported_first(
    orders: dict[str, dict[str, Any]], first: str
) -> None:
    order = dict(orders[first])
    assert "error" not in order, order.get("error")
    assert order.pop("first") == first
    assert order.pop("loaded") == sorted(adapter.module for adapter in ADAPTERS)
    assert order.pop("failed") == {}
    order.pop("patches")
    strangers = {name: origin for name, origin in order.items() if "verl_agentic" not in origin}
    assert not strangers
    assert len(order) == 15


@pytest.mark.parametrize("first", [first for first in _FIRST if not first.startswith("verl_agentic.verl")])
@pytest.mark.slow
def test_patches_of_one_symbol_have_the_order_of_adapters_whatever_is_imported_first(
    orders: dict[str, dict[str, Any]], first: str
) -> None:
    places = {adapter.module: place for place, adapter in enumerate(ADAPTERS)}
    by_symbol: dict[str, list[int]] = {}
    for symbol, adapter in orders[first]["patches"]:
        if adapter in places:  # others are imported by one of these
            by_symbol.setdefault(symbol, []).append(places[adapter])
    assert len(by_symbol["verl.trainer.ppo.v1.replay_buffer:ReplayBuffer.sample"]) == 5
    assert all(found == sorted(found) for found in by_symbol.values())


def test_the_metrics_of_time_are_made_before_the_log_and_the_health_of_a_run_read_them() -> None:
    modules = [adapter.module for adapter in ADAPTERS]
    assert modules.index("extensions.monitoring.step_time") < modules.index("extensions.monitoring.health.trainer_log")


@pytest.mark.nightly
def test_without_an_entry_point_a_recipe_of_ours_stops_before_ray(tmp_path: Path) -> None:
    process = installs.without_entry_point(tmp_path).run_main_ppo(platform="")
    _assert_stopped(process)
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("verl_agentic.base.errors.PluginError: verl did not load the plugin verl_agentic")
    assert "no entry point verl_agentic; pip install" in last


@pytest.mark.slow
def test_an_adapter_that_raises_stops_a_run_that_asks_for_it(failing_adapter: installs.Install) -> None:
    process = failing_adapter.run_main_ppo(
        "actor_rollout_ref.rollout.agent.default_agent_loop=env_agent", platform="cpu"
    )
    _assert_stopped(process)
    (line,) = installs.errors_of(process)
    assert "adapters.rollout.agent_loop did not load" in line
    assert "OSError: the disk is full" in line
    assert (
        "PluginError: the verl_agentic plugin did not load completely, got rollout.agent_loop: OSError"
        in process.stderr
    )


@pytest.mark.slow
def test_an_adapter_that_raises_stops_no_run_that_asks_for_nothing_of_it(failing_adapter: installs.Install) -> None:
    process = failing_adapter.run("-W", "ignore", "-c", _VANILLA)
    assert "both went on" in process.stdout, process.stderr
    # And the same process stops at what asks for it.
    assert process.returncode == 1
    assert (
        "PluginError: the verl_agentic plugin did not load completely, got rollout.agent_loop: OSError"
        in process.stderr
    )
    assert len(installs.errors_of(process)) == 1


@pytest.mark.slow
@pytest.mark.verl
def test_a_verl_out_of_range_stops_a_run_that_asks_for_us(tmp_path: Path) -> None:
    process = installs.with_other_verl(tmp_path, "0.10.0").run_main_ppo(platform="")
    _assert_stopped(process)
    (line,) = installs.errors_of(process)
    assert "the plugin did not load" in line
    assert f"verl_agentic works with verl {plugin.SUPPORTED_VERL}, got verl 0.10.0" in line
    assert "PluginError: the verl_agentic plugin did not load, got PluginError: verl_agentic works" in process.stderr


@pytest.mark.slow
@pytest.mark.verl
def test_a_newer_verl_without_a_hook_stops_a_run_that_needs_it_and_names_the_hook(tmp_path: Path) -> None:
    newer = installs.with_other_verl(tmp_path, "0.10.0.dev0")
    newer = installs.without_hook(newer, "experimental/agent_loop/agent_loop.py", "_run_agent_loop")
    process = newer.run_main_ppo("actor_rollout_ref.rollout.agent.default_agent_loop=env_agent", platform="cpu")
    _assert_stopped(process)
    # Several adapters patch it; this one imports some of the others.
    (line,) = (line for line in installs.errors_of(process) if "adapters.rollout.agent_loop did not load" in line)
    assert "verl 0.10.0.dev0 lacks the attribute that adapters." in line
    assert "must wrap, got verl.experimental.agent_loop.agent_loop:AgentLoopWorker._run_agent_loop; install" in line
    fault = "PluginError: the verl_agentic plugin did not load completely, got rollout.agent_loop: PluginError: verl"
    assert f"{fault} 0.10.0.dev0 lacks the attribute that adapters." in process.stderr


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [
        ("0.8.0", False),
        ("0.9.0rc1", False),
        ("0.9.0", True),
        ("0.9.1", True),
        ("0.9.1+cu128", True),
        ("0.9.2.dev0", True),
        ("0.9.12", True),
        ("0.10.0.dev", True),  # as verl's main writes it
        ("0.10.0rc1", False),
        ("0.10.0", False),
        ("1.0", False),
        ("none", False),
    ],
)
def test_the_supported_versions_of_verl(version: str, is_supported: bool) -> None:
    if is_supported:
        plugin._check_version(version)
    else:
        with pytest.raises(PluginError, match=rf"works with verl >=0\.9\.0,.*, got verl {version}; pip install"):
            plugin._check_version(version)


def test_the_package_requires_the_releases_of_verl_that_the_plugin_accepts() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'\n  "verl{plugin.RELEASED_VERL}",\n' in project.read_text()
    released, supported = SpecifierSet(plugin.RELEASED_VERL), SpecifierSet(plugin.SUPPORTED_VERL)
    assert all(supported.contains(version) for version in released.filter(["0.9.0", "0.9.1", "0.9.99"]))


def test_the_check_raises_for_the_adapters_asked_for_and_for_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_state", PluginState(failed={"rollout.agent_loop": "OSError: full"}))
    plugin.check("replay_buffer.episode_buffer")
    plugin.load_demanded([])
    with pytest.raises(PluginError, match=r"rollout\.agent_loop"):
        plugin.check("replay_buffer.episode_buffer", "rollout.agent_loop")
    with pytest.raises(PluginError, match=r"rollout\.agent_loop"):
        plugin.check()
    with pytest.raises(PluginError, match=r"rollout\.agent_loop"):
        plugin.load_demanded(["rollout.agent_loop"])
    monkeypatch.setattr(plugin, "_state", PluginState(failed={"plugin": "OSError: full"}))
    with pytest.raises(PluginError, match="plugin: OSError"):
        plugin.load_demanded(["replay_buffer.episode_buffer"])
    assert plugin.state().loaded == []


def _assert_stopped(process: subprocess.CompletedProcess[str]) -> None:
    assert process.returncode == 1, process.stdout + process.stderr
    # What verl prints before it starts Ray, and Ray after it.
    assert "ray init kwargs" not in process.stdout
    assert "Started a local Ray" not in process.stderr
