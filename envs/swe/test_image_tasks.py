"""Tasks whose repository is in an image, as imported ones are; with an engine, and an image made of the sample."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import EnvRow
from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.sandbox.docker.docker_backend import DockerConfig
from verl_agentic.swe.sample_store import sample_store

from .test_env import FIX, ROW, SUBMIT, TASK, bash, played

_BASE_IMAGE = os.environ.get("VERL_AGENTIC_DOCKER_IMAGE", "verl-agentic-test:latest")


@pytest.fixture(scope="module")
def row() -> Iterator[EnvRow]:
    """The row of a task that names an image and has no files in the store."""
    docker = pytest.importorskip("docker")
    from verl_agentic.sandbox.docker.docker_engine import Engine

    try:
        Engine(None).close()
    except SandboxUnavailableError as cause:
        if os.environ.get("VERL_AGENTIC_REQUIRE_DOCKER") == "1":
            pytest.fail(str(cause))
        pytest.skip(f"no Docker engine to test with: {cause}")
    client = docker.from_env()
    if not client.images.list(_BASE_IMAGE):
        client.close()
        pytest.skip(f"the engine has no image {_BASE_IMAGE}; make it with .ci/docker_engine.sh image")
    if not client.images.list(DockerConfig().image):
        client.images.get(_BASE_IMAGE).tag(DockerConfig().image)  # that of sandboxes without an own one
    task = replace(TASK, image="verl-agentic/swe.test:latest", kind="imported", base_commit="", tests="", site="")
    _make_image(client, task.image)
    yield replace(ROW, extra={**ROW.extra, "task": task.to_json()})
    client.images.remove(task.image, force=True)
    client.close()


def _make_image(client: Any, name: str) -> None:
    store = sample_store()
    site = store.site(TASK)
    assert site is not None
    container = client.containers.create(_BASE_IMAGE, ["true"])
    try:
        python = client.containers.run(_BASE_IMAGE, ["python3", "-c", "import site; print(site.getsitepackages()[0])"])
        packages = python.decode().strip()
        container.put_archive("/", _pack_tar({"testbed": store.base(TASK), packages.lstrip("/"): site}, packages))
        container.commit(*name.split(":"))
    finally:
        container.remove(force=True)


def _pack_tar(folders: dict[str, Path], packages: str) -> bytes:
    packed = io.BytesIO()

    def of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        return member

    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, folder in folders.items():
            archive.add(folder, name, filter=of_root)
        for name, text in ((f"{packages}/editable.pth", "/testbed\n"), ("testbed/.git/solution", "secret\n")):
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def test_a_task_of_the_store_is_solved_in_a_container_of_the_chosen_image(row: EnvRow) -> None:
    look = bash("test -f /.dockerenv && git log --oneline | wc -l")
    observations, reward, env = played([look, FIX, *SUBMIT], sandbox="docker", image=_BASE_IMAGE)
    assert (reward.outcome, env.report and env.report.forged) == (1.0, ())
    assert observations[0].messages[0].content.strip().startswith("1")
    _, reward, _ = played(SUBMIT, sandbox="docker", image=_BASE_IMAGE)
    assert reward.outcome == 0.0


def test_the_fix_of_a_task_in_an_image_is_paid_and_the_wrong_code_is_not(row: EnvRow) -> None:
    look = bash("ls .git/solution; python -c 'import quill; print(quill.__file__)'; python -m pytest --version")
    observations, reward, env = played([look, FIX, *SUBMIT], row=row)
    assert (reward.outcome, env.report and env.report.forged) == (1.0, ())
    text = observations[0].messages[0].content
    assert "No such file" in text and "/work/testbed/quill/__init__.py" in text and "pytest 9" in text
    _, reward, env = played(SUBMIT, row=row)
    assert reward.outcome == 0.0 and env.report is not None
    assert "passed" not in env.report.f2p.values() and set(env.report.p2p.values()) == {"passed"}
