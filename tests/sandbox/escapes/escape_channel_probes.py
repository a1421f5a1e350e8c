"""Probes of channels: what one sandbox can tell another one, or the machine, through files that both may read."""

from __future__ import annotations

from escape_kernel_probes import _number
from escape_probe import probe

from verl_agentic.sandbox.interface import Command

# Files of the machine, which each sandbox may read, and the devices, which it may also write.
_SHARED = ("/usr/bin/env", "/usr/bin", "/", "/dev/null", "/dev/zero", "/dev/urandom")

# A second process takes the lock. Both have opened the file themselves, as two sandboxes would.
_OTHER_LOCKS = """
        import fcntl
        seen = []
        for path in {paths!r}:
            for mode in (os.O_RDONLY, os.O_RDWR):
                try:
                    first, second = os.open(path, mode), os.open(path, mode)
                except OSError:
                    continue
                ready, go_on = os.pipe(), os.pipe()
                pid = os.fork()
                if pid == 0:
                    try:
                        {take}
                        os.write(ready[1], b"x")
                        os.close(go_on[1])
                        os.read(go_on[0], 1)
                    except OSError:
                        os.write(ready[1], b"-")
                    os._exit(0)
                if os.read(ready[0], 1) == b"x":
                    try:
                        {look}
                    except BlockingIOError:
                        seen.append(path)
                    except OSError:
                        pass
                for descriptor in (*ready, *go_on, first, second):
                    os.close(descriptor)
                os.waitpid(pid, 0)
        return seen
"""
_ASKED = """
                        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
                        answer = fcntl.fcntl(second, {command}, lock)
                        if struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK:
                            seen.append(path)
"""


def _locks(take: str, look: str) -> str:
    return _OTHER_LOCKS.format(paths=_SHARED, take=take, look=look.strip())


CHANNELS = [
    probe(
        "locks_of_whole_files",
        _locks("fcntl.flock(first, fcntl.LOCK_EX)", "fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)"),
    ),
    probe(
        "shared_locks_of_whole_files",
        _locks("fcntl.flock(first, fcntl.LOCK_SH)", "fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)"),
    ),
    probe(
        "locks_of_ranges",
        _locks(
            "fcntl.lockf(first, fcntl.LOCK_EX | fcntl.LOCK_NB)", "fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB)"
        ),
    ),
    probe("questions_about_locks_of_ranges", _locks("fcntl.lockf(first, fcntl.LOCK_SH)", _ASKED.format(command=5))),
    probe(
        "questions_about_locks_of_open_files",
        _locks('fcntl.fcntl(first, 37, struct.pack("hhqqi4x", 0, 0, 0, 0, 0))', _ASKED.format(command=36)),
    ),
    probe(
        "leases", 'import fcntl\nreturn fcntl.fcntl(os.open("own", os.O_CREAT | os.O_RDONLY), 1024, fcntl.F_RDLCK) == 0'
    ),
    probe(
        "watched_folder_by_signal",
        """
        import fcntl
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        return fcntl.fcntl(os.open("/usr/bin", os.O_RDONLY), 1026, 1) == 0
        """,
    ),
    probe(
        "watched_folder",
        f"""
        watch = syscall({_number("inotify_init1")}, 0)
        return syscall({_number("inotify_add_watch")}, watch, b"/usr/bin", 0x20)
        """,
    ),
    probe(
        "hints_of_files",
        """
        import fcntl
        for path in ("/usr/bin/env", sys.executable, "own"):
            descriptor = os.open(path, os.O_CREAT if path == "own" else os.O_RDONLY)
            fcntl.fcntl(descriptor, 1036, struct.pack("Q", 3))
            return fcntl.fcntl(os.open(path, os.O_RDONLY), 1035, bytes(8))
        """,
        as_root=True,
    ),
    probe(
        "attributes_of_files",
        """
        import fcntl
        descriptor = os.open("own", os.O_CREAT | os.O_RDONLY)
        flags = fcntl.ioctl(descriptor, 0x80086601, bytes(8))
        fcntl.ioctl(descriptor, 0x40086602, struct.pack("q", struct.unpack("q", flags)[0] | 0x40))
        return True
        """,
    ),
    probe(
        "extended_attributes_of_files",
        """
        import fcntl
        descriptor = os.open("own", os.O_CREAT | os.O_RDONLY)
        attributes = bytearray(fcntl.ioctl(descriptor, 0x801C581F, bytes(28)))
        attributes[0] |= 0x40
        fcntl.ioctl(descriptor, 0x401C5820, bytes(attributes))
        return True
        """,
    ),
    probe(
        "times_of_devices",
        """
        for path in ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"):
            before = os.stat(path).st_mtime_ns
            try:
                os.utime(path)
            except OSError:
                continue
            if os.stat(path).st_mtime_ns != before:
                return path
        """,
    ),
    probe(
        "access_times_of_files",
        """
        open("own", "w").write("x")
        os.utime("own", (1, 1))
        paths = (os.path.join(folder, name) for folder, _, names in os.walk("/usr") for name in names)
        stale = []
        for path in ["own"] if not $IN_BOX else paths:
            status = os.lstat(path)
            is_stale = status.st_atime <= status.st_mtime or status.st_atime < time.time() - 90_000
            if stat.S_ISREG(status.st_mode) and status.st_size and is_stale and os.access(path, os.R_OK):
                stale.append((path, status.st_atime))
            if len(stale) == 20:
                break
        for path, before in stale:
            open(path, "rb").read(1)
            if os.stat(path).st_atime != before:
                return path
        """,
    ),
    probe(
        "numbers_of_processes",
        """
        numbers = {int(line) for line in open("/proc/sys/kernel/ns_last_pid")} if not $IN_BOX else {os.getpid()}
        return max(numbers) > 60
        """,
        before=[
            Command(code="import os\nfor _ in range(100):\n    if not os.fork():\n        os._exit(0)\n    os.wait()")
        ],
    ),
    probe(
        "lower_limit_on_core_dumps",
        """
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        libc.setrlimit(4, struct.pack("QQ", 0, 0))
        # With 1, the kernel starts no program for core dumps.
        return resource.getrlimit(resource.RLIMIT_CORE)[0] != 1
        """,
    ),
    probe(
        "priority_of_others",
        "return 41 - os.getpriority(os.PRIO_PROCESS, $VICTIM)",
    ),
]
