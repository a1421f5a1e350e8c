"""The trees that a box begins with: kept in a place without a path, and mounted into the working folder.

A writable tree is an overlay: the kept files below, and a layer for changes above. So a reset copies nothing.
Where the kernel refuses overlays, the files are copied. A read-only tree is bound.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from . import files, rootfs, syscalls
from .syscalls import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REMOUNT

_DISKS = 4  # size of the place, as that of snapshots


class BoxTree(NamedTuple):
    """One tree."""

    lower: str
    """The folder of its files."""
    layer: str
    """The folder for what changes."""
    path: str
    """Its place below the working folder."""
    is_read_only: bool
    user: int | None
    """Owner of a writable tree."""


class BoxTrees:
    """All trees of a box."""

    def __init__(self, *, disk_mb: int, shared: int = -1) -> None:
        """Takes the size of a layer for changes, and a descriptor of the folder of shared trees, if there is one."""
        self._disk_mb, self._shared = disk_mb, shared
        self._trees: list[BoxTree] = []
        self._covered = -1
        self.has_overlays = True
        """False once the kernel has refused one."""

    def add(self, path: str, *, is_read_only: bool, user: int | None) -> BoxTree:
        """Makes a folder for the files of a tree, which the caller writes before it mounts the tree."""
        if self._covered < 0:
            self._covered = rootfs.make_covered(megabytes=_DISKS * self._disk_mb, mode=0o755)
        place = f"/proc/self/fd/{self._covered}/{len(self._trees)}"
        tree = BoxTree(f"{place}/lower", f"{place}/layer", path, is_read_only, user)
        for folder in (place, tree.lower, tree.layer):
            os.mkdir(folder, 0o755)
        _set_owner(tree.lower, user)
        self._trees.append(tree)
        return tree

    def share(self, path: str, number: int) -> BoxTree:
        """Adds a shared tree, which is read-only."""
        self._trees.append(BoxTree(f"/proc/self/fd/{self._shared}/{number}", "", path, True, None))
        return self._trees[-1]

    def mount_all(self, *, is_snapshot: bool) -> None:
        """Mounts all trees into a new working folder; after a snapshot, which has the others, the read-only ones."""
        for tree in self._trees:
            if not is_snapshot:
                self.mount(tree)
            elif tree.is_read_only:
                with contextlib.suppress(OSError, files.BadPathError):  # code has left something else at its place
                    self.mount(tree)

    def mount(self, tree: BoxTree) -> None:
        """Mounts a tree."""
        os.close(files.make_folders(files.WORK, tree.path, user=tree.user))
        place = f"{files.WORK}/{tree.path}"
        if tree.is_read_only:
            syscalls.mount(tree.lower, place, None, MS_BIND)
            flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV
            syscalls.mount(None, place, None, flags)
        elif self.has_overlays:
            try:
                self._mount_overlay(tree, place)
            except OSError:
                self.has_overlays = False
        if not tree.is_read_only and not self.has_overlays:
            files.copy_tree(tree.lower, place)

    def _mount_overlay(self, tree: BoxTree, place: str) -> None:
        with contextlib.suppress(OSError):
            syscalls.umount(tree.layer)  # that before a reset
        rootfs.mount_layer(tree.layer, disk_mb=self._disk_mb)
        upper, work = f"{tree.layer}/upper", f"{tree.layer}/work"
        for folder in (upper, work):
            os.mkdir(folder, 0o755)
        _set_owner(upper, tree.user)
        options = f"lowerdir={tree.lower},upperdir={upper},workdir={work},userxattr"
        syscalls.mount("overlay", place, "overlay", MS_NOSUID | MS_NODEV, options)


def _set_owner(folder: str, user: int | None) -> None:
    if user is not None:
        os.chown(folder, user, user)
