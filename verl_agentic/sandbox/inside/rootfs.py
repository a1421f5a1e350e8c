"""The file system of untrusted code: read-only system folders and a few small tmpfs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from . import syscalls
from .syscalls import MS_BIND, MS_MOVE, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT

# Programs and libraries. Other folders of the host (home, etc, var, run, opt, srv, mnt, root) are missing.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ETC = {
    "passwd": "root:x:0:0:root:/work:/bin/sh\nsandbox:x:1000:1000:sandbox:/work:/bin/sh\n",
    "group": "root:x:0:\nsandbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
ETC_OF_HOST = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_MS_NOATIME, _MS_RELATIME = 1024, 1 << 21
_OPEN = 0o1777
_LOCKED = {os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC, os.ST_NOATIME: _MS_NOATIME, os.ST_RELATIME: _MS_RELATIME}
OWN_MOUNTS = ("/tmp", "/work", "/dev/shm")
STAGE = "/stage"
PROGRAMS = "/opt/bin"  # first in PATH: `python` is the interpreter that runs code


def open_given(read_only: list[tuple[str, str]]) -> list[tuple[int, str]]:
    """Opens additional paths as a user who may read them: (path on the host, path inside)."""
    return [(os.open(source, os.O_PATH), target) for source, target in read_only]


def build(base: str, *, given: list[tuple[int, str]]) -> None:
    """Builds the root in an empty folder of a private mount namespace; `given`: (descriptor, path inside) of others."""
    syscalls.mount(None, "/", None, MS_REC | MS_PRIVATE)
    syscalls.mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for path in SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), base + path)
        elif os.path.isdir(path):
            _bind(path, base + path)
    os.mkdir(base + "/etc")
    for name, text in _ETC.items():
        with open(f"{base}/etc/{name}", "w") as file:
            file.write(text)
    for path in ETC_OF_HOST:
        if os.path.exists(path):
            _bind(os.path.realpath(path), base + path)
    for descriptor, target in given:
        _bind(f"/proc/self/fd/{descriptor}", base + target)
        os.close(descriptor)
    os.makedirs(base + PROGRAMS)
    for name in ("python", "python3"):
        os.symlink(sys.executable, f"{base}{PROGRAMS}/{name}")
    _make_dev(base + "/dev")
    for folder in ("/proc", STAGE, *OWN_MOUNTS):
        os.makedirs(base + folder, exist_ok=True)
    # A new proc may only be mounted where a full one is visible. Each box covers this one.
    syscalls.mount("/proc", base + "/proc", None, MS_BIND | MS_REC)
    syscalls.pivot_root(base)


def make_private(*, disk_mb: int) -> int:
    """Mounts a box's own writable folders and `/proc`; returns a descriptor of a writable `/proc`."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    syscalls.mount("proc", STAGE, "proc", flags)
    writable = os.open(STAGE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.umount(STAGE)
    syscalls.mount("proc", "/proc", "proc", flags | MS_RDONLY)
    for mount in own_mounts(disk_mb=disk_mb):
        mount()
    syscalls.mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return writable


def make_hidden(*, megabytes: int, mode: int) -> int:
    """Returns a descriptor of a new folder without a path; it exists until the descriptor is closed."""
    _tmpfs(STAGE, megabytes=megabytes, mode=mode)()
    descriptor = os.open(STAGE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.umount(STAGE)
    return descriptor


def stage(*, disk_mb: int) -> int:
    """Mounts a working folder for a process; returns a descriptor for reading its files after the process has ended."""
    _tmpfs(STAGE, megabytes=disk_mb, mode=_OPEN)()
    return os.open(STAGE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def unstage(descriptor: int) -> None:
    """Unmounts it."""
    syscalls.umount(STAGE)
    os.close(descriptor)


def own_mounts(*, disk_mb: int, is_staged: bool = False) -> list[Callable[[], None]]:
    """Returns mounts that cover writable folders with empty ones, and the working folder with the staged one."""
    return [
        syscalls.mounting(STAGE, folder, None, MS_MOVE)
        if is_staged and folder == "/work"
        else _tmpfs(folder, megabytes=disk_mb, mode=_OPEN)
        for folder in OWN_MOUNTS
    ]


def unmount_own() -> None:
    """Unmounts them with their contents."""
    for folder in OWN_MOUNTS:
        syscalls.umount(folder)


def _tmpfs(folder: str, *, megabytes: int, mode: int) -> Callable[[], None]:
    options = f"size={megabytes}m,nr_inodes={1024 + 256 * megabytes},mode={mode:o}"
    return syscalls.mounting("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    syscalls.mount(source, target, None, MS_BIND | MS_REC)
    # Flags of mounts below this one cannot be changed; those of the top can.
    syscalls.mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | _locked_flags(target))


def _locked_flags(path: str) -> int:
    """Returns the flags of a mount that a user namespace may not remove."""
    flags = os.statvfs(path).f_flag
    return sum(flag for is_set, flag in _LOCKED.items() if flags & is_set)


def _make_dev(folder: str) -> None:
    os.mkdir(folder)
    for name in _DEVICES:
        path = f"{folder}/{name}"
        open(path, "w").close()
        syscalls.mount(f"/dev/{name}", path, None, MS_BIND)
    os.symlink("/proc/self/fd", f"{folder}/fd")
    for index, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{index}", f"{folder}/{name}")
