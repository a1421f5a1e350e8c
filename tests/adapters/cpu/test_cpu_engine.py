"""Refused settings of the CPU engines, and their number of threads."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.extensions.cpu.cpu_engine import CpuEngineWithLMHead, threads_of_a_rank


def test_fsdp1_is_refused_with_what_to_set_instead() -> None:
    config = SimpleNamespace(strategy="fsdp")
    with pytest.raises(ConfigError, match="'fsdp'"):
        CpuEngineWithLMHead(None, config, None, None)


@pytest.mark.parametrize(("name", "ranks"), [("RAY_LOCAL_WORLD_SIZE", 2), ("LOCAL_WORLD_SIZE", 2), (None, 1)])
def test_the_ranks_of_a_machine_share_its_cores(name: str | None, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RAY_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    if name is not None:
        monkeypatch.setenv(name, str(ranks))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert threads_of_a_rank() == 8 // ranks


def test_more_ranks_than_cores_still_get_a_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_LOCAL_WORLD_SIZE", "64")
    assert threads_of_a_rank() == 1
