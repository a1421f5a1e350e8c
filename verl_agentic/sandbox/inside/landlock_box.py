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

from . import box, child, disk_use, files, folder_box, frames, landlock, rootfs, seccomp, syscalls, zygote

_USERS, _NUM_USERS, _USERS_OF_A_ZYGOTE = 3 << 29, 1 << 26, 1000  # above those that `namespaces` takes
_UID_MAP = "/proc/self/uid_map"
_REMOVAL_S = 0.2
_COUNT_S = 1.0  # how long a count of the user's processes is cached
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
        # Descriptors, because code of the same user may change the modes of what leads to them.
        self._at = os.open(folder, folder_box.FOLDER)
        os.mkdir("old", 0o700, dir_fd=self._at)
        self._old = os.open("old", folder_box.FOLDER, dir_fd=self._at)
        self._num_old, self._has_old = 0, False
        self._station = self._make_place("home")

    def serve(self) -> None:
        """Answers requests until the trainer's end is closed or SIGTERM comes; then kills everything left."""
        signal.signal(signal.SIGTERM, lambda *_: self._end_box())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            super().serve()
        finally:
            self._end_box()

    def _end_box(self) -> None:
        """Never returns."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            self._sessions.clear()
            self._kill_strays()
            os.fchmod(self._at, 0o700)
            files.empty(self._at)
            os.rmdir(self._folder)
        finally:
            os._exit(0)

    def _work_while_idle(self) -> None:
        """Removes what is left of old places while no request waits."""
        while self._has_old:  # each request pays for a part, or a busy box would never do it
            self._has_old = not files.empty(self._old, until=time.monotonic() + _REMOVAL_S)
            if self._connection.is_ready(within_s=0):
                return
        super()._work_while_idle()

    def _make_place(self, name: str) -> child.Station:
        """Returns a new place for programs. They may change what is in its two folders, but not replace these."""
        os.fchmod(self._at, 0o700)
        place = _make_folder(name, self._at)
        opened = tuple(_make_folder(inner, place) for inner in ("work", "tmp"))
        rules = landlock.make_rules()
        for descriptor, rights in self._setup["given"]:
            landlock.allow(rules, descriptor, rights)
        landlock.allow(rules, place, landlock.READ)
        for folder in opened:
            landlock.allow(rules, folder, landlock.ALL)
        work, temporary = (f"{self._folder}/{name}/{inner}" for inner in ("work", "tmp"))
        return self._station._replace(
            user=None,  # the box has become it
            work=work,
            folders=(*opened, place),
            env=(("HOME", work), ("TMPDIR", temporary)),
            disk=disk_use.Disk(opened, self._setup["disk_mb"] * 2**20),
            ruleset=rules,
            filter=self._filter,
        )

    def _remove_place(self, station: child.Station) -> None:
        """Puts a place among the old ones, because removing what code has left there may take long."""
        assert station.ruleset is not None
        os.close(station.ruleset)
        for folder in (self._at, station.folders[-1]):
            os.fchmod(folder, 0o700)
        self._num_old, self._has_old = self._num_old + 1, True
        name = os.path.basename(os.path.dirname(station.work))
        os.rename(name, f"{self._num_old}", src_dir_fd=self._at, dst_dir_fd=self._old)
        for folder in station.folders:
            os.close(folder)

    def _unnamed_file(self) -> int:
        os.fchmod(self._at, 0o700)
        file = os.open("snapshot", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._at)
        os.unlink("snapshot", dir_fd=self._at)
        return file

    def _adapt_request(self, request: dict[str, Any]) -> dict[str, Any]:
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


def _make_folder(name: str, above: int) -> int:
    """Makes a folder and returns a descriptor that leaves its access time as it is."""
    os.mkdir(name, 0o700, dir_fd=above)
    return os.open(name, folder_box.FOLDER | os.O_NOATIME, dir_fd=above)


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
            enter=_prepare_zygote,
            namespaces=lambda config: 0,
            admit=lambda pid, number, config: None,
            begin=_switch_user,
            build=_build_box,
            end=signal.SIGTERM,
        )
    )


def _prepare_zygote(trainer: frames.Connection, config: dict[str, Any]) -> None:
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
        *((os.open(path, os.O_PATH), _choose_rights(path)) for path in readable if os.path.exists(path)),
        *((os.open(path, os.O_PATH), landlock.READ_WRITE_FILE) for path in rootfs.DEVICES if os.path.exists(path)),
    ]
    rootfs.pin_devices()
    config["zygote"] = os.getpid()
    config["scope"] = landlock.make_scope([] if config["host_packages"] else rootfs.host_packages())
    _try_user(config)


def _choose_rights(path: str) -> int:
    return landlock.READ if os.path.isdir(path) else landlock.READ_FILE


def _try_user(config: dict[str, Any]) -> None:
    """Checks in advance that a box can work as its user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _switch_user(0, config)
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


def _switch_user(number: int, setup: dict[str, Any]) -> None:
    """Switches, as root, to a user of this box only."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the box can clean up
    syscalls.bound_capabilities()
    if setup["change_user"]:
        user = _choose_user(os.getppid() * _USERS_OF_A_ZYGOTE + number)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    syscalls.give_up_gaining()


def _choose_user(number: int) -> int:
    """Returns one of the existing users; in a container, the mapped ones."""
    with open(_UID_MAP) as file:
        first, count = max(((int(a), int(c)) for a, _, c in map(str.split, file)), key=lambda span: span[1])
    if first + count >= _USERS + _NUM_USERS:
        return _USERS + number % _NUM_USERS
    return first + count // 2 + number % (count // 2 - 100)


def _build_box(trainer: frames.Connection, number: int, setup: dict[str, Any]) -> box.Box:
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
