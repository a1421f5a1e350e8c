"""Python packages of this machine, as code in `namespaces` and `landlock` sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from boxes import LIMITS, started

from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Command, Sandbox
from verl_agentic.sandbox.pools.backends import make_backend

# Prints the files of distributions that code can read, and the installed modules that it can import.
LOOK = """
import glob, importlib, os, pkgutil, site, sys, sysconfig
read, imported = [], []
folders = {*site.getsitepackages(), *sys.path, sysconfig.get_paths()["purelib"], "/usr/lib/python3/dist-packages"}
for root in ("/usr", "/usr/local", sys.base_prefix):
    folders.update(glob.glob(root + "/lib*/python*/*-packages"))
for folder in folders:
    if folder.endswith("-packages"):
        for name in glob.glob(folder + "/*.dist-info/METADATA") + glob.glob(folder + "/*/__init__.py"):
            try:
                open(name).close()
                read.append(name)
            except OSError:
                pass
for name in ("pip", "pytest", "setuptools", "yaml", "numpy"):
    try:
        importlib.import_module(name)
        imported.append(name)
    except Exception:
        pass
print(len(read) > 0, len(imported) > 0, read[:3], imported)
import asyncio, ctypes, json, sqlite3, subprocess, venv  # the standard library is complete
"""


@pytest.fixture(params=[False, True], ids=["hidden", "shown"])
def is_shown(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=["namespaces", "landlock"])
async def backend(request: pytest.FixtureRequest, is_shown: bool) -> AsyncIterator[NamespaceBackend]:
    backend: Any = make_backend(request.param, host_packages=is_shown)
    yield await started(backend)
    await backend.close()


@pytest.mark.sample(1)
async def test_packages_of_the_host_are_neither_imported_nor_read_unless_shown(
    sandbox: Sandbox, is_shown: bool
) -> None:
    for fresh in (False, True):
        result = await sandbox.run(Command(argv=["python", "-c", LOOK]), limits=LIMITS, fresh=fresh)
        assert result.ok, result.stderr
        assert result.stdout.startswith(f"{is_shown} {is_shown} "), result.stdout
    session = await sandbox.open_session("bash", limits=LIMITS)
    result = await session.run("python -m pip --version", wall_s=20.0)
    assert result.ok == is_shown, result
