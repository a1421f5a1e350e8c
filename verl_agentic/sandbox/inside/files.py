"""Reads and writes files of a box. This process is trusted, the files are not."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from .memory import Memory

WORK = "/work"


_ENTRY_BYTES = 4096  # counted per file or folder, in addition to its content
_DISK_BLOCK = 512
_NO_NAMES = ("", ".", "..")


class Disk(NamedTuple):
    """A folder and its maximum size."""

    folder: str
    max_bytes: int


class BadPathError(Exception):
    """A path that leaves the working folder, or goes through a link."""


def write(root: int | str, files: list[list[Any]], data: memoryview, *, user: int | None) -> None:
    """Writes files below `root`.

    Args:
        files: (path, size, mode) of each; `data` holds their contents one after the other.
        user: owner; None: this process's user.
    """
    offset, parent, folder = 0, None, -1
    with contextlib.ExitStack() as stack:
        for path, size, mode in files:
            above, _, name = path.rpartition("/")
            if above != parent or name in _NO_NAMES:  # files of one folder usually come one after the other
                stack.close()
                folder, parent = stack.enter_context(folder_of(root, path, user=user)), above
            file = _create(name, mode, folder)
            try:
                end = offset + size
                while offset < end:
                    offset += os.write(file, data[offset:end])
                os.fchmod(file, mode)
                if user is not None:
                    os.fchown(file, user, user)
            finally:
                os.close(file)


def read(root: int | str, paths: list[str], *, limit: int) -> tuple[list[list[Any]], memoryview]:
    """Returns (path, size) of existing regular files, and their contents outside of the heap; follows no links.

    Args:
        root: the folder, or a descriptor of it.
        limit: maximum bytes in total; files that do not fit are left out.
    """
    with contextlib.ExitStack() as stack:
        opened: list[tuple[str, int, int]] = []
        for path in paths:
            descriptor, size = _open_regular(root, path)
            if descriptor is None:
                continue
            stack.callback(os.close, descriptor)
            if size <= limit:
                limit -= size
                opened.append((path, descriptor, size))
        contents = Memory(sum(size for _, _, size in opened)).view
        found: list[list[Any]] = []
        end = 0
        for path, descriptor, size in opened:
            count = read_into(descriptor, contents[end : end + size])
            found.append([path, count])
            end += count
    return found, contents[:end]


def copy_tree(source: str, target: str) -> None:
    """Copies folders, regular files and links with attributes; leaves out read-only mounts below the source.

    Raises:
        OSError: it is too deep, or space is missing.
    """
    folders, device = [(source, target)], os.stat(source).st_dev
    for folder, goal_folder in folders:  # grows while it is read
        os.makedirs(goal_folder, exist_ok=True)
        for entry in os.scandir(folder):
            goal = os.path.join(goal_folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                is_mount = entry.stat(follow_symlinks=False).st_dev != device
                if not (is_mount and os.statvfs(entry.path).f_flag & os.ST_RDONLY):
                    folders.append((entry.path, goal))
            elif entry.is_symlink():
                os.symlink(os.readlink(entry.path), goal)
                _copy_status(entry.path, goal)
            elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                _copy_data(entry.path, goal)
                _copy_status(entry.path, goal)
    for folder, goal_folder in reversed(folders[1:]):  # deepest first, because adding entries changes a folder's times
        _copy_status(folder, goal_folder)


def is_full(disk: Disk) -> bool:
    """Returns whether a folder exceeds its maximum size; code may be changing it."""
    left, folders = disk.max_bytes, [disk.folder]
    while folders and left >= 0:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                left -= _ENTRY_BYTES
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        left -= entry.stat(follow_symlinks=False).st_blocks * _DISK_BLOCK
                if left < 0:
                    break
    return left < 0


def empty(folder: str) -> None:
    """Removes everything in a folder, of any depth and modes; no other process may be changing it."""
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _flatten(entry.path, folder)
            else:
                os.unlink(entry.path)


def pack(folder: str, archive: IO[bytes], *, max_bytes: float = math.inf) -> None:
    """Packs folders, regular files and links as a tar, also unreadable ones. Raises OSError if there is no space."""
    import tarfile  # imported late to start containers faster

    modes: dict[str, int] = {}
    size = 0

    def readable(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal size
        if entry.isreg() or entry.isdir():
            size += entry.size
            if size > max_bytes:
                raise OSError(errno.EFBIG, f"the files have more than {max_bytes} bytes")
            needed = entry.mode | (0o700 if entry.isdir() else 0o400)
            if needed != entry.mode:
                path = os.path.join(folder, entry.name)
                modes[path] = entry.mode
                os.chmod(path, needed)
            return entry
        return entry if entry.issym() or entry.islnk() else None

    try:
        with tarfile.open(fileobj=archive, mode="w") as packed:
            for name in os.listdir(folder):
                packed.add(os.path.join(folder, name), name, filter=readable)
    finally:
        for path, mode in reversed(modes.items()):
            os.chmod(path, mode)


def unpack(archive: IO[bytes], folder: str) -> None:
    """Unpacks a tar of `pack` into a folder, with all attributes."""
    import tarfile

    options: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    with tarfile.open(fileobj=archive) as packed:
        packed.extractall(folder, **options)


def _flatten(path: str, folder: str) -> None:
    """Moves the content of `path` to `folder` and removes `path`, without recursion or long paths."""
    os.chmod(path, 0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)  # a folder can only be moved by who may write to it
            os.rename(entry.path, f"{folder}/{os.urandom(16).hex()}")
        else:
            os.unlink(entry.path)
    os.rmdir(path)


def _open_regular(root: int | str, path: str) -> tuple[int | None, int]:
    """Returns a descriptor and the size of a regular file, or None."""
    try:
        with folder_of(root, path, user=None, create=False) as folder:
            # Non-blocking, because the path may be a pipe without a writer.
            descriptor = os.open(path.rsplit("/", 1)[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except (OSError, ValueError, BadPathError):
        return None, 0
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return None, 0
    return descriptor, status.st_size


def _create(name: str, mode: int, folder: int) -> int:
    """Returns a descriptor of a new file, which replaces one of the same name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)
        return os.open(name, flags, mode, dir_fd=folder)


def read_into(descriptor: int, view: memoryview) -> int:
    """Reads until the view is full or the file ends; returns the number of bytes."""
    done = 0
    while done < len(view):
        count = os.readv(descriptor, [view[done:]])
        if not count:
            break
        done += count
    return done


def _copy_data(source: str, target: str) -> None:
    """Copies a file without its holes, which may be larger than any disk."""
    with open(source, "rb") as old, open(target, "xb") as new:
        size = os.fstat(old.fileno()).st_size
        os.truncate(new.fileno(), size)
        end = 0
        while end < size:
            try:
                start = os.lseek(old.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # nothing but a hole is left
                raise
            end = os.lseek(old.fileno(), start, os.SEEK_HOLE)
            os.lseek(new.fileno(), start, os.SEEK_SET)
            while start < end:
                count = os.sendfile(new.fileno(), old.fileno(), start, end - start)
                if not count:
                    break
                start += count


def _copy_status(source: str, target: str) -> None:
    status = os.lstat(source)
    os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


@contextlib.contextmanager
def folder_of(root: int | str, path: str, *, user: int | None, create: bool = True) -> Iterator[int]:
    """Opens the folder of a path step by step, following no link."""
    *parts, name = path.split("/")
    if ".." in parts or name in _NO_NAMES:
        raise BadPathError(f"a path must lie below the working folder, got {path!r}")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = os.dup(root) if isinstance(root, int) else os.open(root, flags)
    try:
        for part in parts:
            if part in ("", "."):
                continue
            if create and _make_folder(part, folder) and user is not None:
                os.chown(part, user, user, dir_fd=folder, follow_symlinks=False)
            try:
                deeper = os.open(part, flags, dir_fd=folder)
            except OSError as error:
                raise BadPathError(f"{part!r} of {path!r} is no folder: {error.strerror}") from error
            os.close(folder)
            folder = deeper
        yield folder
    finally:
        os.close(folder)


def make_folders(root: int | str, path: str, *, user: int | None) -> int:
    """Makes the folders of a path, and returns a descriptor of the last one."""
    with folder_of(root, f"{path}/x", user=user) as folder:
        return os.dup(folder)


def _make_folder(name: str, folder: int) -> bool:
    try:
        os.mkdir(name, 0o755, dir_fd=folder)
    except FileExistsError:
        return False
    return True
