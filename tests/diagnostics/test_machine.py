"""The doctor's report on the machine: limits of a container count, and missing parts are reported as missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from verl_agentic.checks import machine
from verl_agentic.sandbox.elsewhere import providers
from verl_agentic.sandbox.pools.backends import BackendProbe

_GIB = 2**30
_CGROUP = "/sys/fs/cgroup"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """Sets the files below `/sys/fs/cgroup`, on a machine with 16 GiB, 12 of them free, and 4 cores."""

    def show(contents: Mapping[str, str]) -> None:
        monkeypatch.setattr(machine, "_read_text", lambda path: contents.get(path.removeprefix(f"{_CGROUP}/")))

    memory = SimpleNamespace(total=16 * _GIB, available=12 * _GIB)
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    return show


@pytest.mark.parametrize(
    ("contents", "status", "found"),
    [
        ({}, "ok", "12.0 GB free of 16.0 GB"),
        ({"memory.max": "max", "memory.current": "1"}, "ok", "12.0 GB free of 16.0 GB"),
        ({"memory.max": str(10 * _GIB), "memory.current": str(_GIB)}, "ok", "9.0 GB free of 10.0 GB"),
        ({"memory.max": str(10 * _GIB), "memory.current": str(4 * _GIB)}, "fail", "6.0 GB free of 10.0 GB"),
        (
            # 4 GiB used, 3 of them the cache of files, which the kernel gives back.
            {
                "memory.max": str(10 * _GIB),
                "memory.current": str(4 * _GIB),
                "memory.stat": f"anon {_GIB}\ninactive_file {3 * _GIB}",
            },
            "ok",
            "9.0 GB free of 10.0 GB",
        ),
        (
            {
                "memory/memory.limit_in_bytes": str(6 * _GIB),
                "memory/memory.usage_in_bytes": str(2 * _GIB),
                "memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {_GIB}",
            },
            "fail",
            "5.0 GB free of 6.0 GB",
        ),
        # Version 1 without a limit shows a huge number.
        ({"memory/memory.limit_in_bytes": str(2**63 - 4096)}, "ok", "12.0 GB free of 16.0 GB"),
    ],
)
def test_memory_is_what_machine_and_control_group_leave(
    files: Callable[[Mapping[str, str]], None], contents: dict[str, str], status: str, found: str
) -> None:
    files(contents)
    check = machine._check_memory()
    assert (check.status, check.found) == (status, found)
    assert bool(check.advice) == (status == "fail")


@pytest.mark.parametrize(
    ("contents", "status", "found"),
    [
        ({}, "ok", "4 usable"),
        ({"cpu.max": "max 100000"}, "ok", "4 usable"),
        ({"cpu.max": "250000 100000"}, "ok", "4 usable, the control group allows 2.5"),
        ({"cpu.max": "50000 100000"}, "warn", "4 usable, the control group allows 0.5"),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "ok", "4 usable"),
        (
            {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"},
            "warn",
            "4 usable, the control group allows 1",
        ),
    ],
)
def test_cores_are_what_machine_and_control_group_leave(
    files: Callable[[Mapping[str, str]], None], contents: dict[str, str], status: str, found: str
) -> None:
    files(contents)
    check = machine._check_cores()
    assert (check.status, check.found) == (status, found)


def test_a_version_out_of_range_fails_when_we_need_it_and_warns_when_we_advise_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ["verl<0.10,>=0.9.1", 'transformers<6,>=5.10; extra == "cpu"', 'ray>=99; extra == "dev"']
    monkeypatch.setattr(machine, "requires", lambda name: asked)
    monkeypatch.setattr(machine, "version", lambda name: {"verl": "0.10.0", "transformers": "4.1"}.get(name, "1.0"))
    checks = {check.check: check for check in machine._check_versions()}
    assert (checks["verl"].status, checks["verl"].found) == ("fail", "0.10.0, not <0.10,>=0.9.1")
    assert checks["verl"].advice == "pip install 'verl<0.10,>=0.9.1'"
    assert checks["transformers"].status == "warn"
    assert (checks["ray"].status, checks["ray"].found) == ("ok", "1.0")


@pytest.mark.parametrize(("found", "status"), [("0.9.1", "ok"), ("0.10.0.dev0", "ok"), ("0.10.0", "fail")])
def test_a_verl_that_the_plugin_works_with_fits_although_pip_would_not_install_it(
    monkeypatch: pytest.MonkeyPatch, found: str, status: str
) -> None:
    monkeypatch.setattr(machine, "requires", lambda name: ["verl<0.10,>=0.9.1"])
    monkeypatch.setattr(machine, "version", lambda name: found)
    checks = {check.check: check for check in machine._check_versions(">=0.9.1,<=0.10.0.dev0")}
    assert checks["verl"].status == status


def test_a_package_that_is_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine, "version", version)
    assert {check.status for check in machine._check_versions()} == {"fail"}
    assert {check.found for check in machine._check_versions()} == {"not installed"}


@pytest.mark.slow
def test_each_sandbox_backend_is_tried_with_code() -> None:
    checks = {check.check: check for check in machine._check_sandboxes()}
    assert set(checks) >= {"sandbox namespaces", "sandbox docker", "sandbox landlock", "sandbox local"}
    assert checks["sandbox local"].status == "ok"
    assert checks["sandbox local"].found.endswith("a limit on the disk")


def test_a_backend_that_does_not_work_says_why_and_fails_only_when_no_other_isolates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    works = BackendProbe(name="landlock", isolation="landlock", run_ms=12.34)
    local = BackendProbe(name="local", isolation="process_limits", run_ms=12.34)
    broken = BackendProbe(name="namespaces", isolation="namespaces", refusal="user namespaces are off")

    def check(*probes: BackendProbe) -> list[tuple[str, str]]:
        async def probe_all() -> list[BackendProbe]:
            return list(probes)

        monkeypatch.setattr(machine, "probe_all", probe_all)
        return [(c.status, c.found) for c in machine._check_sandboxes()]

    assert check(broken, works) == [
        ("warn", "user namespaces are off"),
        ("ok", f"runs code in 12.3 ms, isolates by landlock; cannot do: {works.lacks}"),
    ]
    assert check(broken, local)[0] == ("fail", "user namespaces are off")
    assert check(broken) == [("fail", "user namespaces are off")]


def test_providers_are_listed_with_what_they_need_and_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers.importlib.util, "find_spec", lambda name: None if name == "daytona" else object())
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    monkeypatch.setenv("MODAL_TOKEN_ID", "id")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "secret")
    check = machine._list_providers()
    assert check.status == "ok"
    for said in (
        "daytona: not installed; pip install 'verl-agentic[daytona]'",
        "e2b: installed; set E2B_API_KEY to use it",
        "modal: can be used, not tested; try: verl-agentic sandbox run --backend modal -- true",
    ):
        assert said in check.found


def test_a_gpu_with_a_torch_for_cpus_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine, "_run_command", lambda command: "NVIDIA H200, 143771 MiB")
    for version, status in (("2.13.0+cpu", "warn"), ("2.13.0", "ok")):
        monkeypatch.setattr(machine, "version", lambda name, version=version: version)
        check = machine._check_accelerator()
        assert (check.status, check.found) == (status, "NVIDIA H200, 143771 MiB")
    monkeypatch.setattr(machine, "_run_command", lambda command: None)
    assert machine._check_accelerator().found.startswith("none")
