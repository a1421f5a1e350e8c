"""The doctor finds what is broken and names its cause; its exit code says whether a quickstart would run."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import installs
import psutil
import pytest

from verl_agentic.base.finding import Finding
from verl_agentic.checks import machine
from verl_agentic.checks.cli import doctor
from verl_agentic.plugin import ADAPTERS, SUPPORTED_VERL
from verl_agentic.verl.extensions import plugin_probe

_DOCTOR = ("-c", "from verl_agentic.cli import main; raise SystemExit(main())", "doctor")
_WELL: dict[str, Any] = {
    "verl": "0.9.1",
    "path": "plugin.py",
    "was_loaded": True,
    "entry_points": {"verl_agentic": None},
    "loaded": [adapter.module for adapter in ADAPTERS],
    "failed": {},
}


def _report(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report = json.loads(process.stdout)
    return {**report, "by_name": {check["name"]: check for check in report["checks"]}}


@pytest.mark.slow
def test_a_healthy_installation_would_run_a_quickstart_even_beside_a_plugin_that_fails(tmp_path: Path) -> None:
    process = installs.with_other_plugin(tmp_path, "not our fault").run(*_DOCTOR, "--json")
    report = _report(process)
    failed = [check for check in report["checks"] if check["status"] == "fail" and check["name"] != "memory"]
    assert not failed, failed
    checks = report["by_name"]
    assert process.returncode == (0 if report["ok"] else 1)
    assert report["ok"] or checks["memory"]["status"] == "fail"  # a small machine is no broken installation
    versions = {"verl-agentic", "verl", "torch", "ray", "transformers", "tensordict", "TransferQueue", "math-verify"}
    sandboxes = {"sandbox namespaces", "sandbox docker", "sandbox local"}
    assert set(checks) >= versions | sandboxes | {"python", "cpu", "cores", "memory", "accelerator"}
    assert set(report["plugin"]) == {"process", "ray_worker"}
    for place, name in (("process", "plugin"), ("ray_worker", "plugin in a Ray worker")):
        assert sorted(report["plugin"][place]["loaded"]) == sorted(adapter.module for adapter in ADAPTERS)
        assert checks[name]["status"] == "ok"
    assert checks["other plugin a_plugin"]["status"] == "warn"
    assert checks["other plugin a_plugin"]["found"] == "OSError: not our fault"
    registered = {row["gives"]: row for row in report["registered"]}
    assert registered["rollout backend agentic"]["chosen_by"] == "actor_rollout_ref.rollout.name=agentic"
    assert {row["state"] for row in report["registered"]} == {"loaded"}
    rows = {(row["symbol"], row["order"]): row for row in report["patches"]}
    assert len(rows) == len(report["patches"])
    step = rows["verl.trainer.ppo.v1.trainer_base:PPOTrainer.step", 1]
    assert (step["adapter"], step["kind"], step["versions"]) == ("trainer.schedules", "wrap", SUPPORTED_VERL)
    assert any(row["adapter"] == "extensions.cpu.distributed" for row in report["patches"])


@pytest.mark.nightly
def test_a_missing_entry_point_is_found(tmp_path: Path) -> None:
    process = installs.without_entry_point(tmp_path).run(*_DOCTOR, "--json")
    assert process.returncode == 1
    for name in ("plugin", "plugin in a Ray worker"):
        check = _report(process)["by_name"][name]
        assert check["status"] == "fail"
        assert check["found"] == "no entry point verl_agentic in the group verl.plugins"
        assert "pip install" in check["advice"]


@pytest.mark.nightly
def test_an_adapter_that_raises_is_found_and_shown_to_people(tmp_path: Path) -> None:
    # Square brackets are markup to the library that draws the table.
    process = installs.with_failing_adapter(
        tmp_path, "extensions.methods.trainer.shuffled_rewards", "[/bold] is not [red]"
    ).run(*_DOCTOR)
    assert process.returncode == 1
    assert (
        process.stdout.count("trainer.shuffled_rewards: OSError: [/bold] is not [red]") == 2
    )  # here and in a Ray worker
    assert "a quickstart" in process.stdout
    lines = [" ".join(line.split()) for line in process.stdout.splitlines()]
    assert "estimator grpo_shuffled (a control) failed" in lines
    assert "rollout backend agentic ok" in lines
    assert "actor_rollout_ref.rollout.agent.default_agent_loop=env_agent," in process.stdout


@pytest.mark.nightly
def test_a_verl_out_of_range_is_found(tmp_path: Path) -> None:
    process = installs.with_other_verl(tmp_path, "0.10.0").run(*_DOCTOR, "--json")
    assert process.returncode == 1
    checks = _report(process)["by_name"]
    assert checks["verl"]["status"] == "fail"
    assert checks["verl"]["found"].startswith("0.10.0, not ")
    assert f"works with verl {SUPPORTED_VERL}, got verl 0.10.0" in checks["plugin"]["found"]
    assert checks["plugin in a Ray worker"]["status"] == "fail"


@pytest.mark.nightly
def test_what_is_lost_without_a_hook_of_a_newer_verl_is_named(tmp_path: Path) -> None:
    newer = installs.with_other_verl(tmp_path, "0.10.0.dev0")
    newer = installs.without_hook(newer, "experimental/agent_loop/agent_loop.py", "_run_agent_loop")
    process = newer.run(*_DOCTOR, "--json")
    assert process.returncode == 1
    checks = _report(process)["by_name"]
    assert (checks["verl"]["status"], checks["verl"]["found"]) == ("ok", "0.10.0.dev0")
    check = checks["plugin"]
    assert check["status"] == "fail"
    assert "rollout.agent_loop: PluginError: verl 0.10.0.dev0 lacks the attribute that adapters." in check["found"]
    assert "AgentLoopWorker._run_agent_loop" in check["found"]
    lost = [row["gives"] for row in _report(process)["registered"] if row["state"] == "failed"]
    assert "agent loop env_agent" in lost and check["advice"].startswith(f"lost: {', '.join(lost)}; fix the cause")


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ({"error": "import verl failed, got OSError: full"}, "import verl failed, got OSError: full"),
        ({**_WELL, "entry_points": {}}, "no entry point verl_agentic in the group verl.plugins"),
        ({**_WELL, "entry_points": {"verl_agentic": "OSError: full"}}, "OSError: full"),
        ({**_WELL, "was_loaded": False}, "verl did not load it, VERL_USE_EXTERNAL_PLUGINS=none"),
        ({**_WELL, "failed": {"rollout.agent_loop": "OSError: full"}}, "rollout.agent_loop: OSError: full"),
    ],
)
def test_every_fault_of_the_plugin_is_named_with_what_to_do(
    seen: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    well, broken = doctor._check_plugin_places({"process": _WELL, "ray_worker": seen}, "")
    assert (well.check, well.status) == ("plugin", "ok")
    assert (broken.check, broken.status, broken.found) == ("plugin in a Ray worker", "fail", found)
    assert broken.advice
    if seen.get("failed"):
        assert broken.advice.startswith("lost: agent loop env_agent; fix the cause")


def test_a_probe_without_an_answer_fails_with_what_it_said_last() -> None:
    first, second = doctor._check_plugin_places({"process": _WELL}, "no answer within 3 s")
    assert first.status == "ok"
    assert (second.check, second.status, second.found) == ("plugin in a Ray worker", "fail", "no answer within 3 s")


@pytest.mark.slow
def test_a_probe_that_hangs_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    (tmp_path / "verl.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = time.monotonic()
    assert doctor._probe_plugin(3.0) == ({}, "no answer within 3 s")
    assert time.monotonic() - started < 20
    processes = []
    for pid in map(int, pids.read_text().split()):
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(processes, timeout=10)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert process.status() == psutil.STATUS_ZOMBIE


def test_the_exit_code_is_that_of_the_worst_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_probe_plugin", lambda timeout_s: ({"process": _WELL, "ray_worker": _WELL}, ""))
    for status, expected in (("ok", 0), ("warn", 0), ("fail", 1)):
        check = Finding(check="memory", status=status, found="x")
        monkeypatch.setattr(doctor, "machine_checks", lambda check=check, **_: [check])
        assert doctor.run(argparse.Namespace(json=True, patches=False, timeout=1.0)) == expected
        assert json.loads(capsys.readouterr().out)["ok"] is (expected == 0)


@pytest.mark.parametrize("lists_patches", [False, True])
def test_patches_are_counted_and_listed_when_asked_for(
    lists_patches: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"symbol": "verl.x:Y.z", "adapter": "trainer.a", "kind": "wrap", "order": 1, "versions": ">=0.9.1"}
    rows = [row, {**row, "adapter": "trainer.b", "order": 2}]
    seen = {"process": _WELL, "ray_worker": _WELL, "patches": rows}
    monkeypatch.setattr(doctor, "_probe_plugin", lambda timeout_s: (dict(seen), ""))
    monkeypatch.setattr(doctor, "machine_checks", lambda **_: [])
    doctor.run(argparse.Namespace(json=False, patches=lists_patches, timeout=1.0))
    printed = capsys.readouterr().out
    assert "2 patches of 1 attributes of verl" in printed
    lines = [line.split() for line in printed.splitlines()]
    for order, adapter in (("1", "trainer.a"), ("2", "trainer.b")):
        assert (["verl.x:Y.z", order, "wrap", adapter, ">=0.9.1"] in lines) is lists_patches
    doctor.run(argparse.Namespace(json=True, patches=lists_patches, timeout=1.0))
    assert json.loads(capsys.readouterr().out)["patches"] == rows


def test_a_hook_that_verl_lacks_is_a_warning_with_what_the_user_loses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = {"symbol": "verl.x:Y.z", "adapter": "trainer.a", "versions": ">=0.9.2", "lost": "the metric a"}
    seen = {"process": _WELL, "ray_worker": _WELL, "missing_hooks": [hook]}
    monkeypatch.setattr(doctor, "_probe_plugin", lambda timeout_s: (dict(seen), ""))
    monkeypatch.setattr(doctor, "machine_checks", lambda **_: [])
    assert doctor.run(argparse.Namespace(json=True, patches=False, timeout=1.0)) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["missing_hooks"] == [hook]
    assert report["checks"][-1] == {
        "name": "hook Y.z",
        "status": "warn",
        "found": "verl 0.9.1 lacks verl.x:Y.z; lost: the metric a",
        "advice": "pip install 'verl>=0.9.2'",
    }


def test_what_the_probe_prints_among_other_lines_is_read() -> None:
    output = 'INFO noise\nverl_agentic probe: {"process": {"verl": "0.9.1"}}\nmore noise\n'
    assert plugin_probe.parse(output) == {"process": {"verl": "0.9.1"}}
    both = output + 'x verl_agentic probe: {"ray_worker": {}}\n'
    assert plugin_probe.parse(both) == {"process": {"verl": "0.9.1"}, "ray_worker": {}}
    assert plugin_probe.parse("nothing") == {}


def test_a_worker_looks_itself_only_where_it_imports_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_probe, "look", lambda: {"looked": True})
    packages = plugin_probe.find_packages()
    assert packages["origins"]["verl_agentic"] and ("verl_agentic", "verl_agentic.entry_point") in packages["plugins"]
    assert plugin_probe.look_elsewhere(packages) == plugin_probe.SAME
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    assert plugin_probe.look_elsewhere(packages) == {"looked": True}
    lines = [f"verl_agentic probe: {json.dumps({'ray_worker': plugin_probe.SAME})}"]
    assert "error" in plugin_probe.parse(lines[0])["ray_worker"]
    lines.append(f"verl_agentic probe: {json.dumps({'process': _WELL})}")
    assert plugin_probe.parse("\n".join(lines))["ray_worker"] == _WELL


@pytest.mark.parametrize(
    ("gpus", "torch_version", "platform"),
    [("NVIDIA H100, 81559 MiB", "2.11.0+cu130", "nvidia"), ("NVIDIA H100, 81559 MiB", "2.13.0+cpu", "cpu"),
     (None, "2.11.0+cu130", "cpu")],
)  # fmt: skip
def test_the_platform_of_a_gpu_is_probed_where_torch_can_use_one(
    gpus: str | None, torch_version: str, platform: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(machine, "_run_command", lambda command: gpus)
    monkeypatch.setattr(machine.shutil, "which", lambda name: name)
    monkeypatch.setattr(machine, "_find_version", lambda package: torch_version)
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib\n"
        f"path = pathlib.Path({str(tmp_path)!r}) / f'seen{{os.getpid()}}'\n"
        "path.write_text(os.environ['VERL_PLATFORM'])\nos._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert doctor._probe_plugin(20.0)[1] == "exit code 3"
    assert {path.read_text() for path in tmp_path.glob("seen*")} == {platform}
