"""Read-only trees that all boxes of a zygote share. Each one is a mount below a folder that every box covers.

So a large tree, such as installed packages, is sent and stored once, and a box binds it into its working folder.
"""

from __future__ import annotations

import marshal
import mmap
import os

from . import files, rootfs, syscalls
from .syscalls import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REMOUNT

_MB, _MAX_PROBLEM = 2**20, 1000
_FILE_BYTES = 8192  # a file takes up to a page more, and its folder may take one


def add(number: int, descriptor: int, *, body_size: int, num_files: int) -> str:
    """Mounts a tree under a number; returns why it could not be written, empty if it was.

    Args:
        descriptor: of a file in memory with the marshalled entries and the joined contents.
        body_size: size of the entries.
    """
    place = _tree_path(number)
    os.mkdir(place, 0o755)
    needed = os.fstat(descriptor).st_size + num_files * _FILE_BYTES
    megabytes = needed // _MB + 1
    rootfs.mount_layer(place, disk_mb=megabytes)
    problem = _write_in_fork(place, descriptor, body_size)
    if problem:
        remove(number)
    else:
        syscalls.mount(None, place, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return problem


def remove(number: int) -> None:
    """Unmounts a tree. Boxes that use it keep it."""
    syscalls.umount(_tree_path(number))


def open_covered() -> int:
    """Covers the trees in a box and returns a descriptor of their folder."""
    descriptor = os.open(rootfs.SHARED, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.mount("tmpfs", rootfs.SHARED, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,mode=755")
    return descriptor


def _tree_path(number: int) -> str:
    return f"{rootfs.SHARED}/{number}"


def _write_in_fork(place: str, descriptor: int, body_size: int) -> str:
    """Writes a tree in a forked process, so that its names never enter the heap that boxes inherit."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _write_tree(place, descriptor, body_size, report=writing)
    os.close(writing)
    with open(reading, "rb") as report:
        message = report.read()
    _, status = os.waitpid(pid, 0)
    return message.decode(errors="replace") or ("its process died" if status else "")


def _write_tree(place: str, descriptor: int, body_size: int, *, report: int) -> None:
    """Never returns."""
    status = 1
    try:
        view = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))  # never closed: this process ends
        files.write(place, marshal.loads(view[:body_size]), view[body_size:], user=None)
        status = 0
    except BaseException as error:
        os.write(report, f"{type(error).__name__}: {error}".encode(errors="replace")[:_MAX_PROBLEM])
    finally:
        os._exit(status)
