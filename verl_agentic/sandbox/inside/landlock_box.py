"""A box without namespaces: Landlock rules, a filter of system calls, and, as root, a separate user.

A box is one Landlock domain that signals cannot leave. So the box kills leftover processes with one signal to all that
it may reach. Programs run in a nested domain, from which they cannot reach the box.

    <base>/bin                  links to the interpreter
    <base>/boxes/<number>       the folder of a box, allowed by its rules only
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from typing import Any

from . import box, child, files, folder_box, frames, landlock, rootfs, seccomp, syscalls, zygote

_USERS, _NUM_USERS, _USERS_OF_A_ZYGOTE = 3 << 29, 1 << 26, 1000  # above those that `namespaces` takes
_UID_MAP = "/proc/self/uid_map"
_COUNT_S = 1.0  # how long a count of the user's processes is cached
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files that libraries read at start, in addition to those of `rootfs`.
_ETC = ("/etc/ssl/openssl.cnf", f"/etc/python{sys.version_info[0]}.{sys.version_info[1]}")


class LandlockBox(folder_box.FolderBox):
    """A box whose programs see the allowed files of the machine under their own names."""

    def __init__(self, connection: frames.Connection, setup: dict[str, Any], *, folder: str) -> None:
        """Takes the connection, the trainer's configuration, and a folder that only this user may enter."""
        super().__init__(connection, setup, folder=folder)
        self._filter = syscalls.Filter(
            seccomp.program(
                syscalls.machine(),
                network=False,
                hidden_memory=self._station.has_group,
                is_alone=False,
                has_own_user=setup["change_user"],
            )
        )
        self._count, self._counted_at = 0, -_COUNT_S
        self._station = self._make_place("home")

    def serve(self) -> None:
        """Answers requests until the trainer's end is closed or SIGTERM comes; then kills everything left."""
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            super().serve()
        finally:
            self._end()

    def _end(self) -> None:
        """Never returns."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            self._sessions.clear()
            self._kill_strays()
            os.chmod(self._folder, 0o700)
            files.empty(self._folder)
            os.rmdir(self._folder)
        finally:
            os._exit(0)

    def _make_place(self, name: str) -> child.Station:
        """Returns a new place for programs, accessible by their rules only."""
        os.chmod(self._folder, 0o700)  # code of the same user may have changed it
        path = f"{self._folder}/{name}"
        work, temporary = f"{path}/work", f"{path}/tmp"
        for folder in (path, work, temporary):
            os.mkdir(folder, 0o700)
        rules = landlock.make_rules()
        for descriptor, rights in self._setup["given"]:
            landlock.allow(rules, descriptor, rights)
        own = os.open(path, os.O_PATH)
        landlock.allow(rules, own, landlock.ALL)
        os.close(own)
        return self._station._replace(
            user=None,  # the box has become it
            work=work,
            env=(("HOME", work), ("TMPDIR", temporary)),
            disk=files.Disk(path, self._setup["disk_mb"] * 2**20),
            ruleset=rules,
            filter=self._filter,
        )

    def _remove_place(self, station: child.Station) -> None:
        assert station.ruleset is not None and station.disk is not None
        os.close(station.ruleset)
        os.chmod(self._folder, 0o700)
        os.chmod(station.disk.folder, 0o700)
        files.empty(station.disk.folder)
        os.rmdir(station.disk.folder)

    def _unnamed_file(self) -> int:
        path = f"{self._folder}/snapshot"
        kept = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
        return kept

    def _adapted(self, request: dict[str, Any]) -> dict[str, Any]:
        """Adds the user's other processes to the limit: the box, or all of the trainer's."""
        others = 1 if self._setup["change_user"] else self._processes_of_user()
        limits = {**request["limits"], "processes": request["limits"]["processes"] + others}
        return {**request, "limits": limits}

    def _processes_of_user(self) -> int:
        """Returns the number of processes and threads of this user, including other containers.

        The kernel does not report it, so this searches for the highest limit at which a fork fails.
        """
        if time.monotonic() - self._counted_at > _COUNT_S:
            soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            low, high = 0, max(64, 2 * self._count)
            while not _can_fork(high, hard):
                low, high = high, 2 * high
            while high - low > 1:
                middle = self._count + 1 if low < self._count + 1 < high else (low + high) // 2
                low, high = (low, middle) if _can_fork(middle, hard) else (middle, high)
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
            self._count, self._counted_at = low, time.monotonic()
        return self._count


def _can_fork(limit: int, hard: int) -> bool:
    if hard != resource.RLIM_INFINITY and limit >= hard:
        return True
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    try:
        pid = os.fork()
    except BlockingIOError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def main() -> None:
    """Runs the zygote of this kind of boxes."""
    zygote.main(
        zygote.Kind(
            enter=_enter,
            namespaces=lambda config: 0,
            admit=lambda pid, number, config: None,
            begin=_begin,
            build=_build,
            end=signal.SIGTERM,
        )
    )


def _enter(trainer: frames.Connection, config: dict[str, Any]) -> None:
    """Makes the folders of all boxes, opens readable paths, and tests the boxes' user."""
    base = config["base"]
    os.mkdir(f"{base}/bin")
    for name in ("python", "python3"):
        os.symlink(sys.executable, f"{base}/bin/{name}")
    boxes = f"{base}/boxes"
    os.mkdir(boxes)
    os.chmod(boxes, 0o1733)  # each box makes and removes its own
    config["env"]["PATH"] = config["env"]["PATH"].replace(rootfs.PROGRAMS, f"{base}/bin")
    readable = [*rootfs.SYSTEM, *rootfs.ETC_OF_HOST, *_ETC, sys.base_prefix, *config["read_only"]]
    config["given"] = [
        *((os.open(path, os.O_PATH), _rights(path)) for path in readable if os.path.exists(path)),
        *((os.open(path, os.O_PATH), landlock.READ_WRITE_FILE) for path in _DEVICES if os.path.exists(path)),
    ]
    config["zygote"] = os.getpid()
    config["scope"] = landlock.make_scope([] if config["host_packages"] else rootfs.host_packages())
    _try_user(config)


def _rights(path: str) -> int:
    return landlock.READ if os.path.isdir(path) else landlock.READ_FILE


def _try_user(config: dict[str, Any]) -> None:
    """Checks in advance that a box can work as its user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _begin(0, config)
            os.mkdir(f"{config['base']}/boxes/0")
            os.rmdir(f"{config['base']}/boxes/0")
            open(os.__file__).close()
            if not os.access(sys.executable, os.X_OK):
                raise PermissionError(f"{sys.executable} may not be executed")
        except BaseException as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        problem = file.read().decode(errors="replace")
    os.waitpid(pid, 0)
    if problem:
        raise PermissionError(f"the user that runs the code: {problem}")


def _begin(number: int, setup: dict[str, Any]) -> None:
    """Switches, as root, to a user of this box only."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the box can clean up
    syscalls.bound_capabilities()
    if setup["change_user"]:
        user = _user(os.getppid() * _USERS_OF_A_ZYGOTE + number)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    syscalls.give_up_gaining()


def _user(number: int) -> int:
    """Returns one of the existing users; in a container, the mapped ones."""
    with open(_UID_MAP) as file:
        first, count = max(((int(a), int(c)) for a, _, c in map(str.split, file)), key=lambda span: span[1])
    if first + count >= _USERS + _NUM_USERS:
        return _USERS + number % _NUM_USERS
    return first + count // 2 + number % (count // 2 - 100)


def _build(trainer: frames.Connection, number: int, setup: dict[str, Any]) -> box.Box:
    """Enters the domain of the box."""
    folder = f"{setup['base']}/boxes/{number}"
    os.mkdir(folder, 0o700)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.restrict_self(setup["scope"], landlock.quiet())
    os.close(setup["scope"])
    with contextlib.suppress(PermissionError):
        os.kill(setup["zygote"], 0)
        raise OSError("signals leave the Landlock domain; the box would end other processes of this user")
    return LandlockBox(trainer, setup, folder=folder)
