"""A box that is process 1 of a container, with one user and no privileges.

Code runs as the same user as the box. The box is protected in three ways. Process 1 of a namespace ignores deadly
signals from inside. A process that is not dumpable cannot be read or traced by its user. After an execution with
`fresh`, the box checks everything that code could have changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import resource
import signal
import sys
import threading
import traceback
from typing import Any

from . import box, child, files, frames, processes, rootfs, syscalls

_WRITABLE = (*rootfs.OWN_MOUNTS, "/dev/mqueue")
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_PR_GET_NO_NEW_PRIVS = 39
_SHM_INFO, _SEM_INFO, _MSG_INFO = 14, 19, 12
_NO_LIMIT = 1 << 62
_RIGHTS = {"may_mount": False, "change_user": False, "has_groups": True, "network": False}
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("HOME", "HOSTNAME")}
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


def main() -> None:
    """Sends a greeting, then answers requests until the trainer closes the connection."""
    connection = frames.Connection(os.dup(0), os.dup(1))  # its own are those of programs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it has a handler, so it would reach process 1
    try:
        catch_up()
        setup, _ = connection.receive()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        child.load(setup["imports"])
        container = ContainerBox(connection, {**setup, **_RIGHTS, "env": {**setup["env"], **_ENVIRONMENT}})
        gc.collect()
        gc.freeze()
        connection.send(greeting())
        container.serve()
    except BaseException:
        with contextlib.suppress(OSError):
            connection.send({"error": traceback.format_exc()})
        raise


def catch_up() -> None:
    """Adds functions to `os` that older Pythons and kernels such as gVisor's lack."""
    if not hasattr(os, "waitstatus_to_exitcode"):
        os.waitstatus_to_exitcode = lambda status: (
            -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        )
    os.pidfd_open = getattr(os, "pidfd_open", syscalls.pidfd_open)
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        os.pidfd_open = _watch_end


def _watch_end(pid: int, flags: int = 0) -> int:
    """Returns a descriptor that becomes readable when a child has ended; does not reap it."""
    reading, writing = os.pipe()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, daemon=True).start()
    return reading


class ContainerBox(box.Box):
    """A box that resets by cleaning up, and verifies it."""

    def __init__(self, connection: frames.Connection, setup: dict[str, Any]) -> None:
        super().__init__(connection, setup)
        self._standing = standing()

    def _run_program(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        kills = oom_kills()
        answer, data = super()._run_program(self._adapt_request(request), blob)
        answer["oom"] = oom_kills() > kills
        if request["fresh"]:
            answer["left"] = self._list_remains()
        return answer, data

    def _open_session(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        return super()._open_session(self._adapt_request(request), blob)

    def _call_session(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        kills = oom_kills()
        answer, data = super()._call_session(request, blob)
        answer["oom"] = oom_kills() > kills
        return answer, data

    def _take_snapshot(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        """Returns the working folder as a tar, because code can write everywhere in the container."""
        self._end_all()
        packed = io.BytesIO()
        files.pack(files.WORK, packed)
        return {}, (packed.getvalue(),)

    def _reset_folders(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        """Empties all writable folders and unpacks the blob, if any, into the working folder."""
        self._end_all()
        with contextlib.suppress(FileNotFoundError):  # gVisor does not list them, so any remaining one counts
            processes.remove_shared_memory()
        for folder in _WRITABLE:
            with contextlib.suppress(FileNotFoundError):
                files.empty(folder)
        if blob:
            files.unpack(io.BytesIO(blob), files.WORK)
        return {}, ()

    def _adapt_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Removes the limit on address space.

        The container limits used memory of all processes. Many runtimes reserve more addresses than they use.
        """
        limits = {**request["limits"], "memory_bytes": _NO_LIMIT}
        limits["processes"] += 1  # the box has the same user
        return {**request, "limits": limits}

    def _list_remains(self) -> list[str]:
        """Returns the remains of an execution; empty if the container is in its initial state."""
        remains = [f"process {name}" for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        for folder in _WRITABLE:
            with contextlib.suppress(FileNotFoundError):
                remains += [f"file {entry.path!r}" for entry in os.scandir(folder)]
        remains += [f"{count} {kind}" for kind, count in system_v_objects().items() if count != 0]
        now = standing()
        remains += [f"{name} of process 1" for name, value in self._standing.items() if now[name] != value]
        return remains[:20]


def greeting() -> dict[str, Any]:
    """Returns the actual properties of this container, for the trainer to check."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    with open("/proc/self/mounts") as file:
        mounts = [line.split()[1] for line in file]
    return {
        "python": sys.version.split()[0],
        "pid": os.getpid(),
        "user": os.getuid(),
        "capabilities": int(status["CapEff"], 16) | int(status.get("CapBnd", "0"), 16),
        "no_new_privileges": ctypes.CDLL(None).prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        "seccomp": status.get("Seccomp"),
        "is_exposed": _is_exposed(),
        # Channels that could carry data from one execution to the next.
        "writable": sorted({p for p in mounts if os.path.isdir(p) and os.access(p, os.W_OK)} - set(_WRITABLE)),
        "missing": [folder for folder in rootfs.OWN_MOUNTS if not os.access(folder, os.W_OK)],
    }


def _is_exposed() -> bool:
    """Returns whether code could open descriptors of process 1, such as the trainer's connection (as under gVisor)."""
    pid = os.fork()
    if pid == 0:
        try:
            os.open("/proc/1/fd/1", os.O_WRONLY)
        except OSError:
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] != 0


def standing() -> dict[str, Any]:
    """Returns attributes of this process that others of the same user could change and programs inherit."""
    return {
        "limits": [resource.getrlimit(number) for number in _LIMITS],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": sorted(os.sched_getaffinity(0)),
        "scheduler": (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority),
        "group": (os.getpgrp(), os.getsid(0)),
    }


def system_v_objects() -> dict[str, int]:
    """Returns the number of objects of each kind; -1 if unknown."""
    libc, info = ctypes.CDLL(None), (ctypes.c_int * 64)()
    # Offset of the number in use in the call's structure. gVisor has no /proc/sysvipc.
    calls = {
        "shared memory segments": (lambda: libc.shmctl(0, _SHM_INFO, info), 0),
        "semaphore sets": (lambda: libc.semctl(0, 0, _SEM_INFO, info), 7),
        "message queues": (lambda: libc.msgctl(0, _MSG_INFO, info), 0),
    }
    return {kind: info[place] if call() >= 0 else -1 for kind, (call, place) in calls.items()}


def oom_kills() -> int:
    """Returns the number of the container's processes that the kernel killed for memory; 0 if unknown."""
    for path in _OOM_COUNTERS:
        with contextlib.suppress(OSError), open(path) as file:
            return int(dict(line.split()[:2] for line in file).get("oom_kill", 0))
    return 0
