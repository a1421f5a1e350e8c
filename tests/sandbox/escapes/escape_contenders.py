"""The backends that claim to stop the probes. Another one is one more line in `CONTENDERS`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verl_agentic
from verl_agentic.base.errors import MissingDependencyError, SandboxUnavailableError
from verl_agentic.sandbox.boxes.landlock_backend import LandlockBackend
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.docker.docker_backend import DockerBackend, DockerConfig
from verl_agentic.sandbox.inside import landlock
from verl_agentic.sandbox.interface import Backend, Command, CommandResult, Limits
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

Run = Callable[[Command, Limits], CommandResult]
_ORDINARY_USER = 65_534
_SETPRIV = ("setpriv", f"--reuid={_ORDINARY_USER}", f"--regid={_ORDINARY_USER}", "--clear-groups")
_POOL = PoolConfig(size=1, warm=0)


_LOOK = """
import os
left = [os.listdir(folder) for folder in (".", "/tmp", "/dev/shm")]
left.append([p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())])
print(left if any(left) else "clean")
"""
# No other folder can be seen, and no process.
_LOOK_BY_RULES = """
import os
left = [os.listdir(folder) for folder in (".", os.environ["TMPDIR"])]
print(left if any(left) else "clean")
"""


class UnavailableError(Exception):
    """This machine cannot have the contender; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A backend with the probes that it does not claim to stop."""

    name: str
    open: Callable[[], AbstractContextManager[Run]]
    """Gives a function that runs a command in fresh folders of a sandbox that stays, as long as it is usable."""
    does_not_stop: frozenset[str] = frozenset()
    """Names of probes."""
    python: str = "python3"
    look: str = _LOOK
    """Code that prints `clean` in a place that nobody has used."""


@contextmanager
def in_process(make: Callable[[], Backend]) -> Iterator[Run]:
    """Runs a backend of this process in a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def there(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    pool = SandboxPool(make(), _POOL)
    try:
        there(pool.start())
        yield lambda command, limits: there(pool.run(command, limits=limits))
    finally:
        there(pool.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def as_ordinary_user(backend: str) -> Iterator[Run]:
    """Runs a backend in a child process that is not root, and so has no control groups."""
    if os.geteuid() != 0:
        raise UnavailableError("this user is an ordinary one already")
    python, folder = _python_for_all(), Path(__file__).parent
    paths = [str(Path(verl_agentic.__file__).parents[1]), str(folder)]
    code = f"import sys; sys.path[:0] = {paths!r}; import escape_contenders; escape_contenders.serve({backend!r})"
    child = subprocess.Popen(
        [*_SETPRIV, python, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=dict(os.environ),
    )
    assert child.stdin and child.stdout
    answers = child.stdout
    try:
        if answers.readline() != "ready\n":
            raise UnavailableError("the backend does not start for an ordinary user")

        def run(command: Command, limits: Limits) -> CommandResult:
            print(json.dumps(_packed([command, limits])), file=child.stdin, flush=True)
            return _result(json.loads(answers.readline()))

        yield run
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


def serve(backend: str) -> None:
    """Runs commands that come as lines; the other end of `as_ordinary_user`."""
    with in_process(lambda: make_backend(backend)) as run:
        print("ready", flush=True)
        for line in sys.stdin:
            command, limits = json.loads(line)
            files = {path: base64.b64decode(data) for path, data in command["files"].items()}
            command = Command(**{**command, "stdin": base64.b64decode(command["stdin"]), "files": files})
            print(json.dumps(_packed(run(command, Limits(**limits)))), flush=True)


def _packed(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _packed(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    return [_packed(item) for item in value] if isinstance(value, (list, tuple)) else value


def _result(fields: dict[str, Any]) -> CommandResult:
    files = {path: base64.b64decode(data) for path, data in fields["files"].items()}
    return CommandResult(**{**fields, "files": files})


def _python_for_all() -> str:
    """Returns an interpreter that an ordinary user may execute."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError):
            if (
                subprocess.run(
                    [*_SETPRIV, python, "-c", "import os, sys; os.stat(sys.executable)"], capture_output=True, cwd="/"
                ).returncode
                == 0
            ):
                return python
    raise UnavailableError("no Python here may be executed by an ordinary user")


def _docker() -> Backend:
    image = os.environ.get("VERL_AGENTIC_DOCKER_IMAGE", "verl-agentic-test:latest")
    return DockerBackend(DockerConfig(image=image))


@contextmanager
def _with_engine() -> Iterator[Run]:
    """Runs the backend `docker`; where no engine is, that is a reason to skip, unless one is required."""
    with contextlib.ExitStack() as stack:
        try:
            run = stack.enter_context(in_process(_docker))
        except (SandboxUnavailableError, MissingDependencyError) as reason:
            if os.environ.get("VERL_AGENTIC_REQUIRE_DOCKER") == "1":
                raise
            raise UnavailableError(str(reason)) from reason
        yield run


@contextmanager
def _with_landlock() -> Iterator[Run]:
    """Runs the backend `landlock`, which an older kernel cannot have."""
    reason = landlock.why_not()
    if reason is not None:
        raise UnavailableError(reason)
    with in_process(LandlockBackend) as run:
        yield run


# What a container may see: its own empty interfaces, the folders of its image, its control group (read-only), and of
# earlier executions in it the times of its devices and how many processes there were.
_SEEN_IN_CONTAINERS = frozenset(
    ("control_groups", "homes_and_variable_data", "numbers_of_processes", "routes_and_interfaces", "times_of_devices")
)
# Landlock hides no names, numbers and times, and it is a look every 0.1 s that bounds the disk.
_BEYOND_RULES = frozenset(
    {"access_times_of_files", "disk_full", "homes_and_variable_data", "numbers_of_processes", "times_of_devices"}
)
CONTENDERS = [
    Contender(name="namespaces", open=lambda: in_process(NamespaceBackend)),
    Contender(name="namespaces_as_ordinary_user", open=lambda: as_ordinary_user("namespaces")),
    Contender(name="landlock", open=_with_landlock, does_not_stop=_BEYOND_RULES, look=_LOOK_BY_RULES),
    Contender(
        name="landlock_as_ordinary_user",
        open=lambda: as_ordinary_user("landlock"),
        does_not_stop=_BEYOND_RULES,
        look=_LOOK_BY_RULES,
    ),
    Contender(name="docker", open=_with_engine, does_not_stop=_SEEN_IN_CONTAINERS),
]
