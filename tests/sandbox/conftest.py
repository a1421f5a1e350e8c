"""The Docker engine and the sandbox that tests of several files use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from clouds import provider

from verl_agentic.errors import SandboxUnavailableError
from verl_agentic.sandbox.backends import ELSEWHERE, make_backend
from verl_agentic.sandbox.interface import Backend, Sandbox

_IMAGE_SCRIPT = Path(__file__).parents[2] / ".ci" / "docker_image.py"


def _absent(reason: str) -> None:
    if os.environ.get("VERL_AGENTIC_REQUIRE_DOCKER") == "1":
        pytest.fail(f"VERL_AGENTIC_REQUIRE_DOCKER=1, but {reason}")
    pytest.skip(f"no Docker engine to test with: {reason}")


def _sdk() -> Any:
    import docker

    return docker


@pytest.fixture(scope="session")
def docker_image() -> str:
    """The name of the image that the tests use."""
    return os.environ.get("VERL_AGENTIC_DOCKER_IMAGE", "verl-agentic-test:latest")


@pytest.fixture(scope="module")
def api(docker_image: str) -> Iterator[Any]:
    """The SDK's own connection to the engine, which has the image; skips without an engine, unless one is required."""
    docker = pytest.importorskip("docker") if os.environ.get("VERL_AGENTIC_REQUIRE_DOCKER") != "1" else _sdk()
    from verl_agentic.sandbox.docker import docker_engine

    try:
        docker_engine.Engine(None).close()
    except SandboxUnavailableError as cause:
        _absent(str(cause))
    client = docker.APIClient(**docker.utils.kwargs_from_env(), version="auto")
    if not client.images(docker_image):
        rootfs = subprocess.run([sys.executable, _IMAGE_SCRIPT], capture_output=True, check=True).stdout
        name, _, tag = docker_image.partition(":")
        client.import_image_from_data(rootfs, name, tag or "latest")
    yield client
    client.close()


@pytest.fixture(params=["namespaces", "landlock", "local", "docker", *ELSEWHERE])
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
