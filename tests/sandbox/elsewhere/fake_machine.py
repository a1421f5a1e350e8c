"""A machine of a fake provider: namespaces of this one, in which root may do what it may do in a provider's machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from verl_agentic.sandbox.inside.guest_box import _SHARED

_PYTHONS = (f"/usr/local/bin/python{sys.version_info[0]}.{sys.version_info[1]}", "/usr/bin/python3", sys.executable)


def python() -> str:
    """Returns a Python that every user may execute; skips without one."""
    for path in _PYTHONS:
        test = [path, "-I", "-S", "-c", "import json, sys; assert sys.version_info >= (3, 8)"]
        if os.path.exists(path) and not subprocess.run(test, user=65_534, group=65_534, capture_output=True).returncode:
            return path
    pytest.skip(f"none of {_PYTHONS} may be executed by an ordinary user")


def skip_unless_possible() -> None:
    """Skips where this process may not make namespaces as root."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter"))):
        pytest.skip("fake machines need root, unshare and nsenter")
    if subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("namespaces cannot be made here")


class FakeMachine:
    """Processes of a machine; their shared folders are not those of this machine."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = prefix
        shared = sorted({os.path.realpath(folder) for folder in _SHARED if os.path.isdir(folder)})
        mounts = "".join(f"mount -t tmpfs -o mode=1777 tmpfs {shlex.quote(folder)}\n" for folder in shared)
        script = f"set -e\n{mounts}echo ready\nexec sleep infinity"
        self._process = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig=KILL",
                "unshare",
                "--mount",
                "--pid",
                "--net",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                script,
            ],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        task = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pid = int(task.read_text().split()[0])

    async def run(self, argv: Sequence[str], stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Runs a program in the machine; returns exit code, stdout and stderr."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--net", "--wd=/", "--"]
        process = await asyncio.create_subprocess_exec(
            *enter,
            *self._prefix,
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": "/"},
        )
        try:
            stdout, stderr = await process.communicate(stdin)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, stdout, stderr

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file in the machine."""
        code, _, stderr = await self.run(["sh", "-c", 'cat >"$1"', "sh", path], data)
        assert code == 0, stderr

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Ends the machine with everything in it."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
