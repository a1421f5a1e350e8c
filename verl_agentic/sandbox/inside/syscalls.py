"""Linux system calls that Python's standard library lacks."""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 32, 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_CAPABILITY_HEADER, _NO_CAPABILITIES = struct.pack("II", 0x20080522, 0), bytes(24)
_LAST_CAPABILITY = 63
_IPC_RMID = 0
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_PIDFD_OPEN, _LANDLOCK_RESTRICT_SELF = 434, 446  # on every architecture

_libc = ctypes.CDLL(None, use_errno=True)
_capset = _libc.capset  # found here once, not after every fork
_holding = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, as a fork must
_NUMBERS = {"x86_64": {"clone": 56, "pivot_root": 155}, "aarch64": {"clone": 220, "pivot_root": 41}}


def machine() -> str:
    """Returns the architecture, `x86_64` or `aarch64`. Raises OSError for another one."""
    architecture = os.uname().machine
    if architecture not in _NUMBERS:
        raise OSError(f"namespaces are supported on {sorted(_NUMBERS)}, got {architecture!r}")
    return architecture


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """Mounts, binds or remounts."""
    mounting(source, target, kind, flags, options)()


def mounting(
    source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str = ""
) -> Callable[[], None]:
    """Returns a function that mounts when called."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    arguments = (*encoded, ctypes.c_ulong(flags), os.fsencode(options) or None)

    def mount() -> None:
        _check_result(_libc.mount(*arguments), target)

    return mount


def umount(target: str) -> None:
    """Unmounts lazily: hidden at once, released when unused."""
    _check_result(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def unshare(flags: int) -> None:
    """Moves this process into new namespaces."""
    _check_result(_libc.unshare(flags), "unshare")


def raise_loopback() -> None:
    """Raises the loopback device of this process's network namespace, with its addresses from 127.0.0.1 on."""
    request = struct.pack("16sh22x", b"lo", _IFF_UP)
    device = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(device.fileno(), _SIOCSIFFLAGS, request)
    device.close()


def pivot_root(folder: str) -> None:
    """Makes the mount `folder` the root and detaches the old one."""
    os.chdir(folder)
    _check_result(_libc.syscall(_NUMBERS[machine()]["pivot_root"], b".", b"."), "pivot_root")
    umount(".")
    os.chdir("/")


def fork_into(namespaces: int) -> int:
    """Forks into new namespaces; returns the child's pid, 0 in the child."""
    signal_child = 17
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _holding.syscall(_NUMBERS[machine()]["clone"], ctypes.c_ulong(namespaces | signal_child), 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        number = ctypes.get_errno()
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        ctypes.set_errno(number)
    _check_result(pid, "clone")
    return pid


def pidfd_open(pid: int) -> int:
    """Returns a descriptor that is readable when the process has ended; Python has this from 3.9 on."""
    descriptor = _libc.syscall(_PIDFD_OPEN, pid, 0)
    _check_result(descriptor, "pidfd_open")
    return descriptor


def prctl(option: int, argument: int = 0) -> None:
    """Changes an attribute of this process."""
    _check_result(_libc.prctl(option, argument, 0, 0, 0), f"prctl {option}")


def remove_shm(number: int) -> None:
    """Removes a segment of System V shared memory."""
    _check_result(_libc.shmctl(number, _IPC_RMID, None), "shmctl")


def remove_sem(number: int) -> None:
    """Removes a set of System V semaphores."""
    _check_result(_libc.semctl(number, 0, _IPC_RMID), "semctl")


def remove_msg(number: int) -> None:
    """Removes a System V message queue."""
    _check_result(_libc.msgctl(number, _IPC_RMID, None), "msgctl")


def bound_capabilities() -> None:
    """Prevents gaining capabilities by executing a program; held ones stay."""
    for capability in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # one past the kernel's last one


def give_up_gaining() -> None:
    """Prevents this process and its children from gaining privileges; held ones stay."""
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # else there are no ambient ones: gVisor
            raise
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    _check_result(_capset(_CAPABILITY_HEADER, _NO_CAPABILITIES), "capset")


class Filter(ctypes.Structure):
    """A seccomp program in the kernel's form; made before the fork, because it costs as much as the fork."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    def __init__(self, program: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(program, len(program))
        super().__init__(len(program) // 8, ctypes.cast(self._buffer, ctypes.c_void_p))


def load_seccomp(program: Filter) -> None:
    """Filters the system calls of this process and its children."""
    mode_filter = 2
    _check_result(_libc.prctl(PR_SET_SECCOMP, mode_filter, ctypes.byref(program), 0, 0), "seccomp")


def restrict_self(ruleset: int, flags: int = 0) -> None:
    """Applies Landlock rules to this process and its children; see `landlock`."""
    _check_result(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, flags), "landlock_restrict_self")


def _check_result(result: int, subject: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{subject}: {os.strerror(number)}")
