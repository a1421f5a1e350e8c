"""A box that is process 1 of a container: it has one user and no rights, and whatever the container gave it.

Code runs as the same user as the box. What keeps them apart: process 1 of a namespace takes no deadly signal from
within it, a process that may not be dumped can be neither read nor traced by its own user, and after an execution
with `fresh` the box looks at everything that code could have changed and says whether it is as it was.
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
    """Greets the trainer and then answers its requests until its end of the connection is closed."""
    connection = frames.Connection(os.dup(0), os.dup(1))  # its own are those of programs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one signal that has a handler, and so would reach process 1
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
    """Gives `os` what older Pythons, and kernels such as gVisor's, do not have."""
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
    """Returns a descriptor that can be read from when a child has ended, of which it takes nothing away."""
    reading, writing = os.pipe()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, daemon=True).start()
    return reading


class ContainerBox(box.Box):
    """A box that resets by cleaning up, and proves it."""

    def __init__(self, connection: frames.Connection, setup: dict[str, Any]) -> None:
        super().__init__(connection, setup)
        self._standing = standing()

    def _run(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        kills = oom_kills()
        answer, data = super()._run(self._adapted(request), blob)
        answer["oom"] = oom_kills() > kills
        if request["fresh"]:
            answer["left"] = self._left()
        return answer, data

    def _open(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        return super()._open(self._adapted(request), blob)

    def _call(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        kills = oom_kills()
        answer, data = super()._call(request, blob)
        answer["oom"] = oom_kills() > kills
        return answer, data

    def _snapshot(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        """Returns the working folder as a tar: here is no place for it that code could not write to."""
        self._end_all()
        packed = io.BytesIO()
        files.pack(files.WORK, packed)
        return {}, (packed.getvalue(),)

    def _reset(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        """Empties all writable folders and unpacks the blob, if there is one, into the working folder."""
        self._end_all()
        with contextlib.suppress(FileNotFoundError):  # gVisor does not list them: then one that is left is a reason
            processes.remove_shared_memory()
        for folder in _WRITABLE:
            with contextlib.suppress(FileNotFoundError):
                files.empty(folder)
        if blob:
            files.unpack(io.BytesIO(blob), files.WORK)
        return {}, ()

    def _adapted(self, request: dict[str, Any]) -> dict[str, Any]:
        """Gives the program no limit of its addresses.

        The container's limit counts memory that is used, of all processes together; the other one would count
        addresses, of which many runtimes reserve more than they ever use.
        """
        limits = {**request["limits"], "memory_bytes": _NO_LIMIT}
        limits["processes"] += 1  # the box has the same user
        return {**request, "limits": limits}

    def _left(self) -> list[str]:
        """Returns what an execution has left behind; nothing, when the container is as it was in the beginning."""
        left = [f"process {name}" for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        for folder in _WRITABLE:
            with contextlib.suppress(FileNotFoundError):
                left += [f"file {entry.path!r}" for entry in os.scandir(folder)]
        left += [f"{count} {kind}" for kind, count in system_v_objects().items() if count != 0]
        now = standing()
        left += [f"{name} of process 1" for name, value in self._standing.items() if now[name] != value]
        return left[:20]


def greeting() -> dict[str, Any]:
    """Returns what this container turns out to be: the trainer compares it with what it asked for."""
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
        # Whatever could carry something from one execution to the next.
        "writable": sorted({p for p in mounts if os.path.isdir(p) and os.access(p, os.W_OK)} - set(_WRITABLE)),
        "missing": [folder for folder in rootfs.OWN_MOUNTS if not os.access(folder, os.W_OK)],
    }


def _is_exposed() -> bool:
    """Tells whether code could open what process 1 has open, the connection to the trainer included: gVisor's kernel
    keeps that from no process of the same user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.open("/proc/1/fd/1", os.O_WRONLY)
        except OSError:
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] != 0


def standing() -> dict[str, Any]:
    """Returns what another process of the same user could change of this one, and programs would inherit."""
    return {
        "limits": [resource.getrlimit(number) for number in _LIMITS],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": sorted(os.sched_getaffinity(0)),
        "scheduler": (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority),
        "group": (os.getpgrp(), os.getsid(0)),
    }


def system_v_objects() -> dict[str, int]:
    """Returns how many there are of each kind; -1 where the kernel does not tell."""
    libc, info = ctypes.CDLL(None), (ctypes.c_int * 64)()
    # The place of the number that is in use, in the structure that the call fills in. No /proc/sysvipc in gVisor.
    calls = {
        "shared memory segments": (lambda: libc.shmctl(0, _SHM_INFO, info), 0),
        "semaphore sets": (lambda: libc.semctl(0, 0, _SEM_INFO, info), 7),
        "message queues": (lambda: libc.msgctl(0, _MSG_INFO, info), 0),
    }
    return {kind: info[place] if call() >= 0 else -1 for kind, (call, place) in calls.items()}


def oom_kills() -> int:
    """Returns how many processes of the container the kernel has killed for their memory; 0 where it does not tell."""
    for path in _OOM_COUNTERS:
        with contextlib.suppress(OSError), open(path) as file:
            return int(dict(line.split()[:2] for line in file).get("oom_kill", 0))
    return 0
