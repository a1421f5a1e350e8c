"""The last steps before untrusted code: limits, user, capabilities, filter."""

from __future__ import annotations

import importlib
import os
import resource
import sys

# `_signal` instead of `signal`, whose enums would cost dozens of page copies in every program.
from _signal import SIG_DFL, SIGCHLD, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ, signal  # pyright: ignore[reportMissingImports]
from typing import Any, NamedTuple

from . import disk_use, files, main_module, seccomp, syscalls

FILTERS = {
    (network, has_group): syscalls.Filter(seccomp.program(syscalls.machine(), network=network, hidden_memory=has_group))
    for network in (False, True)
    for has_group in (False, True)
}

_HIGHEST = {
    number: highest if (highest := resource.getrlimit(number)[1]) != resource.RLIM_INFINITY else sys.maxsize
    for number in (
        resource.RLIMIT_AS,
        resource.RLIMIT_CPU,
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_NOFILE,
        resource.RLIMIT_NPROC,
    )
}


class Station(NamedTuple):
    """Settings of all programs of a box."""

    user: int | None
    """User of the programs; None if there is no separate user."""
    has_group: bool
    """Whether a control group counts memory, including memory of no process."""
    proc: int | None
    """A descriptor of a writable `/proc`; None if the visible one is writable."""
    ready: tuple[int, int]
    """A pipe on which a new program reports that it starts its code, or a failure before."""
    work: str = files.WORK
    """The path of the working folder."""
    folders: tuple[int, ...] = ()
    """Descriptors of the working folder, the one for temporary files, and the one that holds both, so that nothing
    that code puts in their place is followed. Empty if the working folder is a mount."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables that depend on the place."""
    disk: disk_use.Disk | None = None
    """Limit on files that only checks of the folder can enforce."""
    ruleset: int | None = None
    """A descriptor of Landlock rules; None with namespaces."""
    filter: syscalls.Filter | None = None
    """The filter of system calls; None for one of `FILTERS`."""

    @property
    def root(self) -> int | str:
        """The working folder, as a descriptor if there is one."""
        return self.folders[0] if self.folders else self.work


def load(names: list[str]) -> None:
    """Imports modules before programs are forked."""
    if "random" in names:
        _load_random()
    for name in names:
        importlib.import_module(name)


def _load_random() -> None:
    """Imports `random` so that a C function reseeds it in every program, because its own hook would copy dozens of
    pages.
    """
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    try:
        import random
    finally:
        os.register_at_fork = register
    register(after_in_child=super(random.Random, random._inst).seed)


def prepare(env: dict[str, str]) -> None:
    """Prepares once what all forked programs share."""
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = True  # an edit of the same size in the same second would not be seen
    _forbid_what_none_needs()
    syscalls.give_up_gaining()
    reading, writing = os.pipe()  # the streams ask what they are made of: what it will be
    for target, source in enumerate((reading, writing, writing)):
        os.dup2(source, target)
    os.close(reading)
    os.close(writing)
    main_module.prepare()


def become_untrusted(
    limits: dict[str, Any], *, stdio: tuple[int, int, int], keep: tuple[int, ...], station: Station
) -> None:
    """Prepares this forked process, which is in its working folder, for untrusted code; raises on failure.

    Args:
        stdio: descriptors that become 0, 1 and 2.
        keep: descriptors that stay open.
    """
    os.setsid()
    for target, source in enumerate(stdio):
        os.dup2(source, target)
    for number in (SIGPIPE, SIGXFSZ, SIGINT, SIGCHLD, SIGTERM):
        signal(number, SIG_DFL)
    _set_limits(limits)
    if station.user is not None:
        os.setresgid(station.user, station.user, station.user)
        os.setresuid(station.user, station.user, station.user)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # its own /proc/self is its own again
    _go_first(station.proc)
    if station.ruleset is not None:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, SIGKILL)  # no namespace ends with the box
        syscalls.restrict_self(station.ruleset)
    _close_all_but(keep)
    syscalls.drop_capabilities()
    syscalls.load_seccomp(station.filter or FILTERS[bool(limits["network"]), station.has_group])


def _go_first(proc: int | None) -> None:
    """Makes the kernel kill this process before process 1 when memory runs out."""
    score = os.open("/proc/self/oom_score_adj" if proc is None else "self/oom_score_adj", os.O_WRONLY, dir_fd=proc)
    os.write(score, b"1000")
    os.close(score)


def run_code(source: str, folder: str) -> int:
    """Runs Python source of a folder as `__main__` in this interpreter and returns its exit code."""
    sys.path.insert(0, folder)  # as for a script, so that given files can be imported
    return main_module.finish(main_module.run_source(source, main_module.new_main_module()))


def execute(argv: list[str]) -> None:
    """Executes another program; never returns. Failures end with a shell's exit codes."""
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _set_limits(limits: dict[str, Any]) -> None:
    memory, cpu_s = limits["memory_bytes"], limits["cpu_s"]
    for number, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
    ):
        highest = _HIGHEST[number]
        resource.setrlimit(number, (min(soft, highest), min(hard, highest)))


def _forbid_what_none_needs() -> None:
    """Sets limits that are the same for all programs."""
    highest = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if highest:  # 1 byte: 0 would start the machine's program for core dumps, but cannot be raised everywhere
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    for number in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        try:
            resource.setrlimit(number, (0, 0))
        except ValueError:
            if number != resource.RLIMIT_MSGQUEUE:  # a limit that gVisor does not have
                raise


def _close_all_but(keep: tuple[int, ...]) -> None:
    low = 3
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 65_536)
