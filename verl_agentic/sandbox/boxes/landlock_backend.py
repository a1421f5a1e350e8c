"""The backend `landlock`, for machines that allow neither namespaces nor Docker, such as an ordinary container.

It uses the zygote and boxes of the backend `namespaces` without namespaces: Landlock rules for files, TCP, signals and
abstract sockets, a filter of system calls for the rest, and, if the trainer is root, a user for each box. Code sees the
allowed paths of the machine. It has HOME and TMPDIR, but no `/work`, `/tmp`, `/dev/shm` and `/proc`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.base.settings import Settings
from verl_agentic.sandbox.boxes.namespaces_backend import DEFAULT_IMPORTS, NamespaceBackend, Zygote
from verl_agentic.sandbox.inside import landlock

_SOMEBODY = 65_534  # an ordinary user, whoever it is
_TRY = "import os, json, sys; open(os.__file__).close(); os.stat(sys.executable)"
_TRY_TIMEOUT_S = 30


class LandlockConfig(Settings):
    """Sandboxes of the backend `landlock`."""

    imports: Sequence[str] = DEFAULT_IMPORTS
    """Modules that are loaded before the first execution."""
    read_only: Sequence[str] = ()
    """Folders and files that the code may read and execute, in addition to the system's programs."""
    python_path: Sequence[str] = ()
    """Paths, appended to `sys.path`; for packages among `read_only`."""
    host_packages: bool = False
    """True lets the code read the Python packages of the host. Otherwise it sees the names of their files only."""
    disk_mb: int = 64
    """Maximum size of a sandbox's files, in MiB; checked every 0.1 s."""
    control_groups: bool | None = None
    """Limits on whole sandboxes by control groups; None: if available."""


class LandlockBackend(NamespaceBackend):
    """Sandboxes of Landlock rules."""

    name = "landlock"
    _end = signal.SIGTERM  # the box ends what it has started

    def __init__(self, config: LandlockConfig | None = None) -> None:
        super().__init__()
        self._own_config = config or LandlockConfig()
        self._control_groups = self._own_config.control_groups

    async def start(self) -> None:
        """Starts the zygote. Raises SandboxError if Landlock or another requirement is missing."""
        reason = landlock.why_not()
        if reason is not None:
            raise SandboxUnavailableError(reason)
        await super().start()

    def _make_zygote(self) -> Zygote:
        return _LandlockZygote(self._own_config, has_groups=self._use_groups)


class _LandlockZygote(Zygote):
    module = "landlock_box"
    has_shared_trees = False
    problem = (
        "landlock cannot be used here",
        "give the code's user access to Python and to the folder for temporary files (TMPDIR), or use another backend",
    )

    def python(self) -> str:
        """Returns an interpreter that the code's user may execute, this one if possible."""
        own_python = super().python()
        if os.geteuid() != 0:
            return own_python
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        for python in (own_python, f"/usr/local/bin/{name}", f"/usr/bin/{name}"):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    [python, "-I", "-S", "-c", _TRY],
                    user=_SOMEBODY,
                    group=_SOMEBODY,
                    extra_groups=[],
                    env={},
                    cwd="/",
                    check=True,
                    capture_output=True,
                    timeout=_TRY_TIMEOUT_S,
                )
                return python
        raise SandboxUnavailableError(
            f"no {name} here may be executed by an ordinary user, got {own_python}; install one for all users, in "
            "/usr/bin or /usr/local/bin, or do not run as root"
        )

    def settings(self, config: Any) -> dict[str, Any]:
        return {"read_only": list(config.read_only), "network": False, "may_mount": False}

    def admit(self) -> None:
        """Does nothing."""
