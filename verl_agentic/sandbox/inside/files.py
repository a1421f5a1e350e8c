"""Reads and writes files of a box. This process is trusted, the files are not."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import stat
import time
from collections.abc import Iterator
from typing import IO, Any

from .memory import Memory

WORK = "/work"
MAX_DEPTH = 128  # each level needs a descriptor
_ENTRY_BYTES = 4096  # counted per file or folder, in addition to its content
_AT_ONCE = 1000
_READ = 0o500  # rights of the owner of a folder
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NO_NAMES = ("", ".", "..")


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
            file = _create_file(name, mode, folder)
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
        sizes: list[list[Any]] = []
        end = 0
        for path, descriptor, size in opened:
            count = read_into(descriptor, contents[end : end + size])
            sizes.append([path, count])
            end += count
    return sizes, contents[:end]


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


def empty(folder: int | str, *, until: float = math.inf) -> bool:
    """Removes everything in a folder, of any depth and modes, following no link; False if time (monotonic) is up."""
    with _opened_root(folder) as top:
        while entries := list(itertools.islice(os.scandir(top), _AT_ONCE)):
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _flatten_folder(entry.name, top)
                else:
                    os.unlink(entry.name, dir_fd=top)
                if time.monotonic() > until:
                    return False
    return True


def open_folder(name: str, above: int) -> int:
    """Returns a descriptor of a folder of this user, whatever its mode is; follows no link."""
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        with _made_accessible(name, above, _READ, os.O_DIRECTORY) as path:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


@contextlib.contextmanager
def readable(folder: int) -> Iterator[None]:
    """Makes an open folder readable for its owner meanwhile."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & _READ == _READ:
        yield
        return
    os.fchmod(folder, mode | _READ)
    try:
        yield
    finally:
        if stat.S_IMODE(os.fstat(folder).st_mode) == mode | _READ:  # else code has changed it
            os.fchmod(folder, mode)


def pack(folder: int | str, archive: IO[bytes], *, max_bytes: float = math.inf) -> None:
    """Packs folders, regular files and links as a tar, also unreadable ones. Raises OSError if there is no space."""
    import tarfile  # imported late to start containers faster

    with _opened_root(folder) as top, tarfile.open(fileobj=archive, mode="w") as packed:
        _Packing(packed, max_bytes).add_folder(top, "", 0)


def unpack(archive: IO[bytes], folder: int | str) -> None:
    """Unpacks a tar of `pack` into an empty folder, with all attributes."""
    import tarfile

    options: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    with tarfile.open(fileobj=archive) as packed:
        packed.extractall(f"/proc/self/fd/{folder}" if isinstance(folder, int) else folder, **options)


class _Packing:
    """The files of a tree on their way into an archive."""

    def __init__(self, packed: Any, max_bytes: float) -> None:
        self._packed, self._remaining_bytes = packed, max_bytes
        self._links: dict[tuple[int, int], str] = {}

    def add_folder(self, folder: int, path: str, depth: int) -> None:
        """Adds everything in an open folder. Raises OSError if it is too much or too deep."""
        if depth > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, f"the folders are more than {MAX_DEPTH} deep")
        with readable(folder):
            for name in os.listdir(folder):
                self._add_entry(name, folder, path + name, depth)

    def _add_entry(self, name: str, folder: int, path: str, depth: int) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        entry = self._packed.tarinfo(path)
        entry.mode, entry.uid, entry.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
        entry.mtime = status.st_mtime
        if stat.S_ISDIR(status.st_mode):
            self._add_member(entry, b"5", status.st_size)
            descriptor = open_folder(name, folder)
            try:
                self.add_folder(descriptor, f"{path}/", depth + 1)
            finally:
                os.close(descriptor)
        elif stat.S_ISLNK(status.st_mode):
            entry.linkname = os.readlink(name, dir_fd=folder)
            self._add_member(entry, b"2", 0)
        elif stat.S_ISREG(status.st_mode):
            first = self._links.setdefault((status.st_dev, status.st_ino), path)
            if first != path:
                entry.linkname = first
                self._add_member(entry, b"1", 0)
                return
            entry.size = status.st_size
            with open(_open_file(name, folder), "rb") as content:
                self._add_member(entry, b"0", status.st_size, content)

    def _add_member(self, entry: Any, kind: bytes, size: int, content: IO[bytes] | None = None) -> None:
        self._remaining_bytes -= size + _ENTRY_BYTES
        if self._remaining_bytes < 0:
            raise OSError(errno.EFBIG, "the files have too many bytes or names")
        entry.type = kind
        self._packed.addfile(entry, content)


def _open_file(name: str, folder: int) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except PermissionError:
        with _made_accessible(name, folder, 0o400, 0) as path:
            return os.open(path, flags)


@contextlib.contextmanager
def _made_accessible(name: str, folder: int, mode: int, kind: int) -> Iterator[str]:
    """Adds rights of the owner meanwhile; yields a path that leads to the file even if another takes its place."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | kind, dir_fd=folder)
    try:
        path = f"/proc/self/fd/{descriptor}"
        before = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.chmod(path, before | mode)
        try:
            yield path
        finally:
            os.chmod(path, before)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened_root(folder: int | str) -> Iterator[int]:
    descriptor = os.dup(folder) if isinstance(folder, int) else os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flatten_folder(name: str, top: int) -> None:
    """Moves the folders in a folder to `top` and removes it, without recursion or long paths."""
    folder = open_folder(name, top)
    try:
        os.fchmod(folder, 0o700)
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                inner = open_folder(entry.name, folder)
                os.fchmod(inner, 0o700)  # a folder can only be moved by who may write to it
                os.close(inner)
                os.rename(entry.name, os.urandom(16).hex(), src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


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


def _create_file(name: str, mode: int, folder: int) -> int:
    """Returns a descriptor of a new file, which replaces one of the same name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)
        return os.open(name, flags, mode, dir_fd=folder)


def read_into(descriptor: int, view: memoryview) -> int:
    """Reads until the view is full or the file ends; returns the number of bytes."""
    num_read = 0
    while num_read < len(view):
        count = os.readv(descriptor, [view[num_read:]])
        if not count:
            break
        num_read += count
    return num_read


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
    folder = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER)
    try:
        for part in parts:
            if part in ("", "."):
                continue
            if create and _make_folder(part, folder) and user is not None:
                os.chown(part, user, user, dir_fd=folder, follow_symlinks=False)
            try:
                deeper = os.open(part, _FOLDER, dir_fd=folder)
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
