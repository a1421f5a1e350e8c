"""The file system of untrusted code: read-only system folders and a few small tmpfs."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Callable

from . import syscalls
from .syscalls import MS_BIND, MS_MOVE, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT

# Programs and libraries. Other folders of the host (home, etc, var, run, opt, srv, mnt, root) are missing.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ETC = {
    "passwd": "root:x:0:0:root:/work:/bin/sh\nsandbox:x:1000:1000:sandbox:/work:/bin/sh\n",
    "group": "root:x:0:\nsandbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
ETC_OF_HOST = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_MS_NOATIME, _MS_RELATIME = 1024, 1 << 21
_OPEN = 0o1777
_F_OFD_SETLKW = 38
_LOCKED = {os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC, os.ST_NOATIME: _MS_NOATIME, os.ST_RELATIME: _MS_RELATIME}
OWN_MOUNTS = ("/tmp", "/work", "/dev/shm")
STAGE = "/stage"
SHARED = "/trees"
PROGRAMS = "/opt/bin"  # first in PATH: `python` is the interpreter that runs code


def open_given(read_only: list[tuple[str, str]]) -> list[tuple[int, str]]:
    """Opens additional paths as a user who may read them: (path on the host, path inside)."""
    return [(os.open(source, os.O_PATH), target) for source, target in read_only]


def host_packages() -> list[str]:
    """Returns the folders with installed Python packages, of this interpreter and of the system."""
    from glob import glob

    folders: set[str] = set()
    for root in {os.path.realpath(sys.base_prefix), "/usr", "/usr/local"}:
        for middle in ("", "*/"):
            for kind in ("site-packages", "dist-packages"):
                folders.update(glob(f"{root}/{middle}lib*/python*/{kind}"))
        folders.update(glob(f"{root}/share/python-wheels"))
        if os.path.isdir(f"{root}/conda-meta"):
            folders.update(path for path in (f"{root}/envs", f"{root}/pkgs") if os.path.isdir(path))
    return sorted({os.path.realpath(path) for path in folders})


def build(
    base: str,
    *,
    interpreter: list[tuple[int, str]],
    hidden: list[str],
    extra_paths: list[tuple[int, str]],
    hosts: list[str],
) -> None:
    """Builds the root in an empty folder of a private mount namespace.

    Args:
        interpreter: (descriptor, path inside) of folders that come before the hidden ones.
        hidden: folders that are empty inside.
        extra_paths: (descriptor, path inside) of folders and files that come after them.
        hosts: names of the addresses from 127.0.0.2 on.
    """
    syscalls.mount(None, "/", None, MS_REC | MS_PRIVATE)
    syscalls.mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for path in SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), base + path)
        elif os.path.isdir(path):
            _bind_path(path, base + path)
    os.mkdir(base + "/etc")
    for name, text in _ETC.items():
        with open(f"{base}/etc/{name}", "w") as file:
            file.write(text)
            if name == "hosts":
                file.writelines(f"127.0.0.{number} {host}\n" for number, host in enumerate(hosts, start=2))
    for path in ETC_OF_HOST:
        if os.path.exists(path):
            _bind_path(os.path.realpath(path), base + path)
    _bind_descriptors(base, interpreter)
    for path in hidden:
        if os.path.isdir(base + path):
            syscalls.mount("tmpfs", base + path, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,mode=755")
    _bind_descriptors(base, extra_paths)
    os.makedirs(base + PROGRAMS)
    for name in ("python", "python3"):
        os.symlink(sys.executable, f"{base}{PROGRAMS}/{name}")
    _make_dev(base + "/dev")
    for folder in ("/proc", STAGE, SHARED, *OWN_MOUNTS):
        os.makedirs(base + folder, exist_ok=True)
    # A new proc may only be mounted where a full one is visible. Each box covers this one.
    syscalls.mount("/proc", base + "/proc", None, MS_BIND | MS_REC)
    syscalls.pivot_root(base)


def pin_devices() -> None:
    """Locks the devices for reading, forever. They are files that all sandboxes share and may write, so locks on them
    would tell others something. Now each lock for writing fails, and each one for reading succeeds.
    """
    for device in DEVICES:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)  # never closed
        fcntl.fcntl(descriptor, _F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))


def make_private(*, disk_mb: int) -> int:
    """Mounts a box's own writable folders and `/proc`; returns a descriptor of a writable `/proc`."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    syscalls.mount("proc", STAGE, "proc", flags)
    writable = os.open(STAGE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.umount(STAGE)
    proc_mount()()
    for mount in own_mounts(disk_mb=disk_mb):
        mount()
    syscalls.mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return writable


def proc_mount() -> Callable[[], None]:
    """Returns a mount of the `/proc` of the present processes."""
    return syscalls.mounting("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)


def make_hidden(*, megabytes: int, mode: int) -> int:
    """Returns a descriptor of a new folder without a path; it exists until the descriptor is closed."""
    _make_tmpfs_mount(STAGE, megabytes=megabytes, mode=mode)()
    descriptor = os.open(STAGE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.umount(STAGE)
    return descriptor


def make_covered(*, megabytes: int, mode: int) -> int:
    """Returns a descriptor of a new folder that is mounted, as sources of mounts must be, below an empty one."""
    _make_tmpfs_mount(STAGE, megabytes=megabytes, mode=mode)()
    descriptor = os.open(STAGE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,mode=755")
    return descriptor


def stage(*, disk_mb: int) -> int:
    """Mounts a working folder for a process; returns a descriptor for reading its files after the process has ended."""
    _make_tmpfs_mount(STAGE, megabytes=disk_mb, mode=_OPEN)()
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
        else _make_tmpfs_mount(folder, megabytes=disk_mb, mode=_OPEN)
        for folder in OWN_MOUNTS
    ]


def mount_layer(folder: str, *, disk_mb: int) -> None:
    """Mounts an empty tmpfs at a folder."""
    _make_tmpfs_mount(folder, megabytes=disk_mb, mode=0o755)()


def unmount_own() -> None:
    """Unmounts them with their contents."""
    for folder in OWN_MOUNTS:
        syscalls.umount(folder)


def _make_tmpfs_mount(folder: str, *, megabytes: int, mode: int) -> Callable[[], None]:
    options = f"size={megabytes}m,nr_inodes={1024 + 256 * megabytes},mode={mode:o}"
    return syscalls.mounting("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _bind_descriptors(base: str, paths: list[tuple[int, str]]) -> None:
    for descriptor, target in paths:
        _bind_path(f"/proc/self/fd/{descriptor}", base + target)
        os.close(descriptor)


def _bind_path(source: str, target: str) -> None:
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
    pin_devices()
    for device in DEVICES:
        path = f"{folder}/{os.path.basename(device)}"
        open(path, "w").close()
        syscalls.mount(device, path, None, MS_BIND)
        # Its times, which others see, cannot be changed. Data can be written.
        syscalls.mount(None, path, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | _locked_flags(path))
    os.symlink("/proc/self/fd", f"{folder}/fd")
    for index, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{index}", f"{folder}/{name}")
