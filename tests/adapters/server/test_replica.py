"""A server sees the devices of its trainer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verl_agentic.verl.extensions.server import replica


@pytest.mark.parametrize(("devices", "expected"), [("3", "3"), ("", None)])
def test_a_server_is_limited_to_the_devices_that_its_trainer_is_limited_to(
    devices: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = SimpleNamespace(
        device_name="cuda",
        ray_noset_envvars=lambda: ["RAY_KEEP"],
        rollout_env_vars=lambda: {"NCCL": "0"},
        visible_devices_envvar=lambda: "CUDA_VISIBLE_DEVICES",
    )
    monkeypatch.setattr(replica, "get_platform", lambda: platform)
    variables = replica._make_environment(devices)
    assert variables.pop("CUDA_VISIBLE_DEVICES", None) == expected
    assert variables == {"RAY_KEEP": "1", "NCCL": "0"}
