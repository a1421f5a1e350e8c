"""A box in a machine that a provider isolates. It has no connection: each request and its answer use a short one.

The effective user of the box is that of its programs. Its real and saved user are not. So one signal of the box reaches
all programs, and no program can signal, trace or read the box, although the box has no privileges.

    <base>/socket, key       for requests; only root may open them
    <base>/bin               links to the interpreter
    <base>/kept              snapshots, without names
    <base>/home, fresh       folders of programs, see `folder_box`
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import struct
import sys
import tempfile
import traceback
from typing import Any

from . import box, child, container, disk_use, files, folder_box, frames, seccomp, syscalls
from .memory import Memory

_PROGRAMS, _BOX = 60_321, 60_322  # users that images do not have
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/var/lock")
_STALLED_S = 60
_NUMBER = struct.Struct("<Q")
_RIGHTS = {"may_mount": False, "change_user": True, "has_groups": False, "network": False}


class NumberedRequests(frames.Connection):
    """Requests with numbers. A repeated number gets the answer again, so a client may repeat any request."""

    def __init__(self, listening: socket.socket) -> None:
        reading, self._held_open = os.pipe()
        super().__init__(reading, -1)  # never readable: a program goes on without its client, who may ask again
        self._listening = listening
        self._peer: socket.socket | None = None
        self._number = 0
        self._answer = Memory(0, is_inherited=False)

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        """Waits for a new request."""
        while True:
            self._hang_up()
            self._peer, _ = self._listening.accept()
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _STALLED_S, 0))
            with contextlib.suppress(frames.FrameError, OSError):
                (number,) = _NUMBER.unpack(self._peer.recv(_NUMBER.size, socket.MSG_WAITALL).ljust(_NUMBER.size, b"\0"))
                self._inner = frames.Connection(self._peer.fileno(), -1)
                received = self._inner.receive()
                if number == self._number + 1:
                    self._number = number
                    return received
                self._inner.forget()
                if number == self._number:
                    self._peer.sendall(self._answer.view)

    def is_ready(self, *, within_s: float) -> bool:
        """Returns whether a client connects within a time."""
        return frames.is_readable(self._listening.fileno(), within_s)

    def send(self, message: dict[str, Any], *blobs: bytes | memoryview) -> None:
        """Sends and keeps an answer. A client that has gone asks again."""
        parts = frames.answer(message, sum(map(len, blobs))), *blobs
        self._answer.forget()
        self._answer = Memory(sum(map(len, parts)), is_inherited=False)
        end = 0
        for part in parts:
            self._answer.view[end : end + len(part)] = part
            end += len(part)
        assert self._peer is not None
        with contextlib.suppress(OSError):
            self._peer.sendall(self._answer.view)
        self._hang_up()

    def forget(self) -> None:
        """Drops the request."""
        self._inner.forget()

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


class GuestBox(folder_box.FolderBox):
    """A box whose programs see the files of the machine."""

    def __init__(self, connection: frames.Connection, setup: dict[str, Any], *, folder: str, snapshots: int) -> None:
        """Takes requests, the trainer's configuration, the prepared folder, and one for snapshots."""
        super().__init__(connection, setup, folder=folder)
        self._snapshot_folder = snapshots
        self._filters = {
            network: syscalls.Filter(
                seccomp.program(syscalls.machine(), network=network, hidden_memory=False, is_alone=False)
            )
            for network in (False, True)
        }
        self._filter = self._filters[False]
        self._station = self._make_place("home")

    def _make_place(self, name: str) -> child.Station:
        path = f"{self._folder}/{name}"
        opened = tuple(os.open(f"{path}/{inner}", folder_box.FOLDER | os.O_NOATIME) for inner in ("work", "tmp"))
        return self._station._replace(
            user=_PROGRAMS,
            work=f"{path}/work",
            folders=opened,
            env=(("HOME", f"{path}/work"), ("TMPDIR", f"{path}/tmp")),
            disk=disk_use.Disk(opened, self._setup["disk_mb"] * 2**20),
            filter=self._filter,
        )

    def _remove_place(self, station: child.Station) -> None:
        for folder in station.folders:
            os.fchmod(folder, 0o700)
            files.empty(folder)
            os.close(folder)

    def _unnamed_file(self) -> int:
        file = os.open("kept", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._snapshot_folder)
        os.unlink("kept", dir_fd=self._snapshot_folder)
        return file

    def _adapt_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Takes the filter that fits the request's limits; the limit on processes counts programs only."""
        self._filter = self._filters[bool(request["limits"]["network"])]
        self._station = self._station._replace(filter=self._filter)
        if self._fresh is not None:
            self._fresh = self._fresh._replace(filter=self._filter)
        return request


def main(setup: dict[str, Any], key: bytes) -> None:
    """Starts a box in the background and prints its greeting."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        _become_box(setup, key, writing)
    os.close(writing)
    with open(reading, "rb") as file:
        greeting = file.read().decode()
    print(greeting or json.dumps({"error": "the box ended at its start"}))


def _become_box(setup: dict[str, Any], key: bytes, report: int) -> None:
    """Never returns."""
    try:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            base, guest = _prepare_box(setup, key)
            os.write(report, json.dumps({"base": base, "python": sys.version.split()[0]}).encode())
        except BaseException as error:
            text = f"{error}" if isinstance(error, PermissionError) else traceback.format_exc()
            os.write(report, json.dumps({"error": text[-2000:]}).encode())
            raise
        os.close(report)
        guest.serve()
    finally:
        os._exit(0)


def _prepare_box(setup: dict[str, Any], key: bytes) -> tuple[str, box.Box]:
    """Prepares the machine as root, gives up all rights, and returns the folder and its box."""
    if os.geteuid() != 0:
        raise PermissionError(f"code must not run as the user of the box, got user {os.geteuid()} instead of root")
    container.catch_up()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child.load(setup["imports"])
    base = tempfile.mkdtemp(prefix="verl_agentic_")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{base}/socket")
    os.chmod(f"{base}/socket", 0o600)
    listening.listen()
    for name, mode in (("home", 0o755), ("fresh", 0o755), ("kept", 0o700)):  # programs cannot enter the last one
        os.mkdir(f"{base}/{name}", mode)
        for folder in (f"{base}/{name}/work", f"{base}/{name}/tmp"):
            os.mkdir(folder, 0o700)
            os.chown(folder, _PROGRAMS, _PROGRAMS)
    snapshots = os.open(f"{base}/kept/work", os.O_RDONLY | os.O_DIRECTORY)
    with open(f"{base}/key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(key)
    os.mkdir(f"{base}/bin")
    for name in ("python", "python3"):
        os.symlink(sys.executable, f"{base}/bin/{name}")
    os.chmod(base, 0o755)
    _close_shared_folders()
    _give_up_root()
    env = {**setup["env"], "PATH": f"{base}/bin:{os.environ.get('PATH', os.defpath)}"}
    setup = {**setup, **_RIGHTS, "env": env}
    guest = GuestBox(NumberedRequests(listening), setup, folder=base, snapshots=snapshots)
    return base, guest


def _close_shared_folders() -> None:
    """Denies programs the folders that all users share, in which they could leave data for the next execution."""
    for folder in _SHARED:
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(folder).st_mode)
            if mode & stat.S_IWOTH:
                os.chmod(folder, mode & ~stat.S_IWOTH)


def _give_up_root() -> None:
    syscalls.bound_capabilities()
    os.setgroups([])
    os.setresgid(_BOX, _PROGRAMS, _BOX)
    os.setresuid(_BOX, _PROGRAMS, _BOX)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    _check_users()


def _check_users() -> None:
    """Raises PermissionError if programs reach the box, the box reaches others, or programs cannot start Python."""
    pid = os.fork()
    if pid == 0:
        os.setresuid(_PROGRAMS, _PROGRAMS, _PROGRAMS)
        try:
            os.kill(os.getppid(), 0)
        except PermissionError:
            os._exit(0)
        os._exit(1)
    if os.waitpid(pid, 0)[1] != 0:
        raise PermissionError("programs could end the box here, got no error for a signal; use another kernel or image")
    if not os.access(sys.executable, os.X_OK, effective_ids=True):
        raise PermissionError(f"{sys.executable} must be executable for all users; use another image or python")
    with contextlib.suppress(PermissionError):
        os.kill(1, 0)
        raise OSError("the box could end other processes of this machine, got no error for a signal to process 1")
