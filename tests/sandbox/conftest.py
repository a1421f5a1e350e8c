"""The sandbox that tests of several files use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from clouds import provider

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.sandbox.interface import Backend, Sandbox
from verl_agentic.sandbox.pools.backends import ELSEWHERE, make_backend

_OTHERS = ("landlock", "local", "docker", *ELSEWHERE)


@pytest.fixture(params=["namespaces", *(pytest.param(name, marks=pytest.mark.slow) for name in _OTHERS)])
async def each_backend(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Backend]:
    """Each backend that keeps files; skips one that cannot work here."""
    if request.param in ELSEWHERE:
        with provider(request.param, monkeypatch, tmp_path_factory.mktemp("provider")) as cloud:
            backend = cloud.backend()
            await backend.start()
            yield backend
            await backend.close()
        return
    options: dict[str, Any] = {"local": {"is_trusted": True}}.get(request.param, {})
    if request.param == "docker":
        request.getfixturevalue("api")
        options = {"image": request.getfixturevalue("docker_image")}
    backend = make_backend(request.param, **options)
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    yield backend
    await backend.close()


@pytest.fixture
async def sandbox(backend: Backend) -> AsyncIterator[Sandbox]:
    """A sandbox of the backend that a file of tests names."""
    sandbox = await backend.create()
    yield sandbox
    await sandbox.close()
