"""The backend, the task and the site that tests of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from repository.small_package import make_store

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Backend
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> TaskStore:
    """A folder with the task of the small package."""
    return make_store(tmp_path_factory.mktemp("store"))[0]


@pytest.fixture(scope="session")
def task(store: TaskStore) -> RepoTask:
    """The task of the small package."""
    return next(iter(store.tasks()))


@pytest.fixture(scope="session")
def site(store: TaskStore, task: RepoTask) -> Path:
    """A folder with pytest."""
    found = store.site(task)
    assert found is not None
    return found


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    """The backend `namespaces`."""
    backend = NamespaceBackend()
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    yield backend
    await backend.close()
