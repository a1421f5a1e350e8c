"""The backend `namespaces`: kernel namespaces and a seccomp filter, with or without root, without Docker.

A zygote with a clean environment has a Python interpreter with its imports loaded. Boxes are forked from it into their
own namespaces (users, processes, mounts, network, IPC, host name). Programs are forked from a box; a single execution
has its own temporary file systems.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import marshal
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError, DataError, SandboxError, SandboxUnavailableError
from verl_agentic.base.settings import Settings
from verl_agentic.sandbox.boxes import reaper
from verl_agentic.sandbox.boxes.box_client import ENVIRONMENT, BoxClient, BoxProcess
from verl_agentic.sandbox.boxes.cgroups import ControlGroup, make_group, why_not
from verl_agentic.sandbox.inside import frames
from verl_agentic.sandbox.interface import Tree
from verl_agentic.sandbox.source_trees import packed, refuse_image

_START = """
import sys
sys.path.insert(0, {root!r})
from verl_agentic.sandbox.inside.{module} import main
del sys.path[0]
main()
"""
_START_TIMEOUT_S = 60
_MAX_SHARED_BYTES = 1 << 30
_closing: set[asyncio.Future[None]] = set()  # the loop holds only weak references
_FIRST_USER, _NUM_USERS, _MAX_RANGES = 1 << 30, 65_536, 10_000
# fmt: off
DEFAULT_IMPORTS = (
    "bisect", "collections", "copy", "datetime", "functools", "heapq", "io", "itertools", "json", "math", "operator",
    "random", "re", "string", "traceback", "typing",
)
# fmt: on


class NamespaceConfig(Settings):
    """Sandboxes of the backend `namespaces`."""

    imports: Sequence[str] = DEFAULT_IMPORTS
    """Modules that are loaded before the first execution."""
    read_only: Sequence[tuple[str, str]] = ()
    """(folder or file of the host, path inside) that the code may read, in addition to the system's programs."""
    python_path: Sequence[str] = ()
    """Paths inside, appended to `sys.path`; for packages among `read_only`."""
    host_packages: bool = False
    """True shows the Python packages of the host: `site-packages` of the interpreter and of the system."""
    disk_mb: int = 64
    """Size of the working folder, of `/tmp` and of `/dev/shm`, each, in MiB; in memory."""
    network: bool = False
    """True shares the host's network with executions whose limits allow it."""
    hosts: Sequence[str] = ()
    """Names in a private network of all sandboxes of the backend, for executions whose limits allow it. A name is an
    address, which code of any sandbox may bind to (`sandbox_group`)."""
    control_groups: bool | None = None
    """Limits on whole sandboxes by control groups; None: if available."""


class NamespaceBackend:
    """Sandboxes of namespaces."""

    name = "namespaces"
    _end = signal.SIGKILL

    def __init__(self, config: NamespaceConfig | None = None) -> None:
        self._config = config or NamespaceConfig()
        if self._config.network and self._config.hosts:
            raise ConfigError(f"a private network is not the host's, got network=True with hosts={self._config.hosts}")
        self._control_groups = self._config.control_groups
        self._zygote: Zygote | None = None
        self._use_groups = False
        self._groups: list[ControlGroup] = []
        self._free_groups: list[ControlGroup] = []
        self._boxes: set[BoxClient] = set()
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Starts the zygote. Raises SandboxError if user namespaces are not allowed, or a requirement is missing."""
        if self._zygote is None:
            await asyncio.to_thread(reaper.reap)
            use_groups = self._control_groups
            self._use_groups = why_not(reaper.owner()) is None if use_groups is None else use_groups
            self._zygote = await asyncio.to_thread(self._make_zygote)

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> BoxClient:
        """Makes a box, whose files stay; see `Backend.create`.

        Raises:
            SandboxError: the backend is not started, or its zygote has died.
        """
        refuse_image(self.name, image)
        if self._zygote is None:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        making = asyncio.ensure_future(self._make_box_with(trees))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_close_unwanted)  # an incomplete exchange with the zygote would break the next one
            raise

    async def close(self) -> None:
        """Ends all boxes and the zygote; removes the control groups."""
        await asyncio.gather(*(box.close() for box in list(self._boxes)))
        if self._zygote is not None:
            await asyncio.to_thread(self._zygote.close)
            self._zygote = None
        for group in self._groups:
            await asyncio.to_thread(group.remove)
        self._groups.clear()
        self._free_groups.clear()

    def _make_zygote(self) -> Zygote:
        return Zygote(self._config, has_groups=self._use_groups)

    async def _make_box_with(self, trees: Sequence[Tree]) -> BoxClient:
        box, shared = await self._make_box(trees)
        try:
            await box.place(trees, shared=shared)
        except BaseException:
            await box.close()
            raise
        return box

    async def _make_box(self, trees: Sequence[Tree]) -> tuple[BoxClient, Mapping[str, int]]:
        async with self._lock:
            if self._zygote is None or not self._zygote.is_alive:
                await self._restart_zygote()
            assert self._zygote is not None
            shared = await self._zygote.share([tree for tree in trees if tree.read_only])
            pid, connection = await self._zygote.make_box()
        try:
            life = BoxProcess(pid, end=self._end)
            group = self._take_group(pid)
        except OSError as cause:
            connection.close()
            raise SandboxError(f"the sandbox ended before it began, got {cause}; make a new one") from cause
        reader, writer = await asyncio.open_connection(sock=connection)
        box = BoxClient(reader, writer, life=life, group=group, on_closed=lambda: self._forget_box(box, group))
        self._boxes.add(box)
        return box, shared

    async def _restart_zygote(self) -> None:
        """Replaces a zygote that has died; its boxes have died with it."""
        if self._zygote is not None:
            await asyncio.to_thread(self._zygote.close)
        self._zygote = await asyncio.to_thread(self._make_zygote)

    def _take_group(self, pid: int) -> ControlGroup | None:
        if not self._use_groups:
            return None
        if not self._free_groups:
            self._free_groups.append(make_group(f"{reaper.owner()}_{id(self):x}_{len(self._groups)}"))
            self._groups.append(self._free_groups[-1])
        group = self._free_groups.pop()
        group.enter(pid)
        return group

    def _forget_box(self, box: BoxClient, group: ControlGroup | None) -> None:
        self._boxes.discard(box)
        if group is not None:
            self._free_groups.append(group)


class Zygote:
    """The trainer's end of the zygote."""

    module = "zygote"
    has_shared_trees = True
    problem = "namespaces cannot be used here", "allow user namespaces, or use another backend"

    def __init__(self, config: Any, *, has_groups: bool) -> None:
        self._base = str(reaper.make_folder("root"))
        os.chmod(self._base, 0o755)
        self._shared: OrderedDict[str, tuple[int, int]] = OrderedDict()  # folder -> number, size
        self._numbers = itertools.count()
        self._control, theirs = socket.socketpair()
        # Not settimeout, which would make the descriptor non-blocking.
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _START_TIMEOUT_S, 0))
        self._process = subprocess.Popen(
            [self.python(), "-I", "-S", "-c", _format_start(self.module), str(theirs.fileno())],
            env={"LANG": "C.UTF-8", "LD_BIND_NOW": "1"},  # what would be bound later would be in every program anew
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        try:
            self._set_up_zygote(config, has_groups=has_groups)
        except BaseException:
            self.close()
            raise
        self._control.setblocking(False)

    @property
    def is_alive(self) -> bool:
        """False if it has ended."""
        return self._process.poll() is None

    async def make_box(self) -> tuple[int, socket.socket]:
        """Returns pid and connection of a new box. Raises SandboxError if the zygote has died or cannot make one."""
        ours, theirs = socket.socketpair()
        try:
            answer = await self._send_request({"op": "box"}, theirs.fileno())
        finally:
            theirs.close()
        if "pid" not in answer:
            ours.close()
            raise SandboxError(f"the zygote made no sandbox, got {answer.get('error', 'no answer')}; try again")
        return int(answer["pid"]), ours

    async def share(self, trees: Sequence[Tree]) -> Mapping[str, int]:
        """Keeps read-only trees for all boxes; returns place -> number. Raises DataError if one cannot be written."""
        if not self.has_shared_trees:
            return {}
        return {tree.at: await self._number_of(str(tree.source.resolve()), tree) for tree in trees}

    async def _number_of(self, source: str, tree: Tree) -> int:
        if source in self._shared:
            self._shared.move_to_end(source)
            return self._shared[source][0]
        number = next(self._numbers)
        request, size, descriptor = await asyncio.to_thread(_in_memory, tree)
        try:
            while self._shared and sum(size for _, size in self._shared.values()) + size > _MAX_SHARED_BYTES:
                _, (oldest, _) = self._shared.popitem(last=False)
                await self._send_request({"op": "remove", "number": oldest})
            answer = await self._send_request({"op": "add", "number": number, **request}, descriptor)
        finally:
            os.close(descriptor)
        if problem := answer.get("problem", answer.get("error")):
            raise DataError(f"the tree could not be written, got {problem}; give a smaller one")
        self._shared[source] = number, size
        return number

    async def _send_request(self, request: dict[str, Any], *descriptors: int) -> dict[str, Any]:
        """Sends a request and returns the answer; one with `error` if the zygote failed, which is then ended."""
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            receiving = asyncio.get_running_loop().sock_recv(self._control, 4096)
            return json.loads(await asyncio.wait_for(receiving, _START_TIMEOUT_S) or "{}")
        except (OSError, ValueError, asyncio.TimeoutError) as cause:
            self._process.kill()
            return {"error": str(cause) or type(cause).__name__}

    def close(self) -> None:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._base, ignore_errors=True)

    def python(self) -> str:
        """Returns the interpreter itself, not the link of a virtual environment."""
        return os.path.realpath(sys.executable)

    def settings(self, config: NamespaceConfig) -> dict[str, Any]:
        """Returns additional settings of the zygote."""
        return {
            "interpreter": _list_interpreter_folders(),
            "read_only": [*map(list, config.read_only)],
            "network": config.network or bool(config.hosts),
            "hosts": list(config.hosts),
            "may_mount": True,
            "user": os.geteuid(),
            "group": os.getegid(),
        }

    def admit(self) -> None:
        """Performs the setup that the zygote cannot do itself."""
        pid = self.expect("unshared")
        _map_users(pid, is_root=os.geteuid() == 0)
        self._control.sendall(frames.request({}))

    def _set_up_zygote(self, config: Any, *, has_groups: bool) -> None:
        common = {
            "base": self._base,
            "imports": list(config.imports),
            "python_path": list(config.python_path),
            "disk_mb": config.disk_mb,
            "has_groups": has_groups,
            "host_packages": config.host_packages,
            "change_user": os.geteuid() == 0,
            "env": ENVIRONMENT,
        }
        try:
            self._control.sendall(frames.request({**common, **self.settings(config)}))
            self.admit()
            self.expect("ready")
        except (frames.FrameError, OSError) as cause:
            raise SandboxUnavailableError(
                f"the zygote did not start, got {cause}; run `verl-agentic doctor`"
            ) from cause

    def expect(self, key: str) -> Any:
        """Returns a value of the zygote's next message. Raises SandboxUnavailableError if it reports a failure."""
        text, _ = frames.sizes(self._receive_exactly(frames.HEADER_SIZE))
        message = frames.parse(self._receive_exactly(text))
        if key not in message:
            problem, advice = self.problem
            raise SandboxUnavailableError(f"{problem}, got {message.get('error')}; {advice}")
        return message[key]

    def _receive_exactly(self, count: int) -> bytes:
        received = self._control.recv(count, socket.MSG_WAITALL)
        if len(received) < count:
            raise frames.FrameError("the zygote has gone")
        return received


def _in_memory(tree: Tree) -> tuple[dict[str, int], int, int]:
    """Returns the request for a shared tree, its size, and a descriptor of a file in memory with it."""
    entries, contents = packed(tree)
    # Boxes have other users, which must be able to read the files.
    body = marshal.dumps([[path, size, 0o555 if mode & 0o100 else 0o444] for path, size, mode in entries])
    descriptor = os.memfd_create("tree")
    with open(descriptor, "wb", closefd=False) as file:
        file.writelines((body, contents))
    return {"body_size": len(body), "num_files": len(entries)}, len(contents), descriptor


def _close_unwanted(making: asyncio.Future[BoxClient]) -> None:
    if not making.cancelled() and making.exception() is None:
        closing = asyncio.ensure_future(making.result().close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)


def _map_users(pid: int, *, is_root: bool) -> None:
    """Maps the users of the zygote's namespace to unused users of the host, or to this user."""
    folder = Path(f"/proc/{pid}")
    if is_root:
        first = _FIRST_USER + pid % _MAX_RANGES * _NUM_USERS
        (folder / "uid_map").write_text(f"0 {first} {_NUM_USERS}")
        (folder / "gid_map").write_text(f"0 {first} {_NUM_USERS}")
    else:
        (folder / "setgroups").write_text("deny")
        (folder / "uid_map").write_text(f"{os.geteuid()} {os.geteuid()} 1")
        (folder / "gid_map").write_text(f"{os.getegid()} {os.getegid()} 1")


def _format_start(module: str) -> str:
    return _START.format(root=str(Path(__file__).parents[3]), module=module)


def _list_interpreter_folders() -> list[list[str]]:
    """Returns the folders of the standard library that are outside of the system's folders."""
    prefix = os.path.realpath(sys.base_prefix)
    return [] if prefix.startswith("/usr") else [[prefix, prefix]]
