"""Landlock: rules on files, TCP, signals and abstract sockets that an unprivileged process can apply to itself."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct

MIN_ABI = 6
"""The first version (Linux 6.12) that restricts signals. With older ones, code could kill its box."""
_LOGGING_ABI = 7
_CREATE_RULESET, _ADD_RULE = 444, 445  # on every architecture
_GET_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE, _DEVICE_IOCTL = 1 << 6, 1 << 11, 1 << 15
_REFER = 1 << 13
_ALL_OF_FILES, _ALL_OF_TCP, _ALL_SCOPES = (1 << 16) - 1, 3, 3

READ_FILE, READ_WRITE_FILE = _READ_FILE | _EXECUTE, _READ_FILE | _WRITE_FILE
READ = _EXECUTE | _READ_FILE | _READ_FOLDER
ALL = _ALL_OF_FILES & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE | _DEVICE_IOCTL)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_WHY_NOT = {
    errno.ENOSYS: "the kernel has no Landlock, or a filter of the container hides it; use Linux 6.12 or newer, and an "
    "engine whose seccomp profile allows landlock_create_ruleset (Docker 23 or newer)",
    errno.EOPNOTSUPP: "Landlock is switched off; add landlock to the kernel's parameter lsm=",
    errno.EPERM: "the container's seccomp profile refuses landlock_create_ruleset; use Docker 23 or newer, or give "
    "`docker run --security-opt seccomp=FILE` a profile that allows the three landlock calls",
}


def abi() -> int:
    """Returns the version of Landlock that the kernel has. Raises OSError if Landlock is missing or not allowed."""
    version = _syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    if version < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return version


def why_not() -> str | None:
    """Returns why Landlock cannot be used here and what to do, or None."""
    try:
        version = abi()
    except OSError as error:
        reason = _WHY_NOT.get(error.errno or 0, "use Linux 6.12 or newer")
        return f"Landlock cannot be used here, got {error.strerror}: {reason}"
    if version < MIN_ABI:
        return (
            f"Landlock of version {MIN_ABI} or newer is needed, which keeps signals inside, got version {version}; "
            "use Linux 6.12 or newer"
        )
    return None


def make_rules() -> int:
    """Returns a descriptor of rules that deny files, TCP, and signals and abstract sockets outside of the domain."""
    return _create_ruleset(_ALL_OF_FILES, _ALL_OF_TCP, _ALL_SCOPES)


def make_scope(hidden: list[str]) -> int:
    """Returns a descriptor of rules on signals, abstract sockets, and the contents of files below `hidden` only."""
    rules = _create_ruleset(_REFER | READ_FILE, 0, _ALL_SCOPES)
    _allow_path(rules, "/", _REFER)  # denied unless a rule handles it
    if hidden:
        _allow_all_but(rules, "/", hidden)
    else:
        _allow_path(rules, "/", READ_FILE)
    return rules


def _allow_all_but(rules: int, folder: str, hidden: list[str]) -> None:
    """Allows reading files below a folder, except those in `hidden`; a rule cannot take back what one above allows."""
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            path = entry.path
            if path in hidden or entry.is_symlink():
                continue  # the place that a link leads to has its own rule
            if any(place.startswith(path + "/") for place in hidden):
                _allow_all_but(rules, path, hidden)
            else:
                _allow_path(rules, path, READ_FILE)


def _allow_path(rules: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        try:
            allow(rules, descriptor, rights)
        finally:
            os.close(descriptor)


def quiet() -> int:
    """Returns the flags that keep refusals out of the kernel's audit log."""
    log_same_exec_off, log_subdomains_off = 1, 4
    return log_same_exec_off | log_subdomains_off if abi() >= _LOGGING_ABI else 0


def allow(rules: int, descriptor: int, rights: int) -> None:
    """Allows rights on a file, or on a folder and everything below it."""
    rule = struct.pack("<Qi", rights, descriptor)
    if _syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0) < 0:
        raise OSError(ctypes.get_errno(), f"landlock_add_rule: {os.strerror(ctypes.get_errno())}")


def _create_ruleset(files: int, tcp: int, scopes: int) -> int:
    attributes = struct.pack("<QQQ", files, tcp, scopes)
    rules = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), f"landlock_create_ruleset: {os.strerror(ctypes.get_errno())}")
    return rules
