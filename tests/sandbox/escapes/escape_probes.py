"""Attempts of hostile code, as data: a probe is a small program, its expected end, and a plain process to prove
that it would succeed where nothing stops it."""

from __future__ import annotations

import signal

from escape_channel_probes import CHANNELS
from escape_kernel_probes import KERNEL
from escape_probe import BRIEF, Probe, bounded, ends_with, held, probe, runs_on, timed_out

from verl_agentic.sandbox.interface import Command, Limits

_OWN_MOUNTS = ("unshare", "-m", "--propagation", "private")
NETWORK = [
    probe("tcp_to_host_loopback", 'return socket.create_connection(("127.0.0.1", $TCP_PORT), 2).getpeername()'),
    probe(
        "udp_to_host_loopback",
        """
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.settimeout(2)
        client.sendto(b"x", ("127.0.0.1", $UDP_PORT))
        return client.recvfrom(10)
        """,
    ),
    probe("ipv6_socket", "return socket.socket(socket.AF_INET6, socket.SOCK_STREAM)"),
    probe(
        "dns",
        """
        resolver = os.path.exists("/etc/resolv.conf") and open("/etc/resolv.conf").read()
        return resolver and socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        """,
    ),
    probe(
        "routes_and_interfaces",
        """
        names = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
        return [n for n in names if n != "lo"] or "127.0.0.1" in open("/proc/net/fib_trie").read()
        """,
    ),
    probe("raw_socket", "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", as_root=True),
    probe("packet_socket", "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)", as_root=True),
    probe("netlink_socket", "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
    probe("vsock", "return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    probe(
        "abstract_unix_socket_of_host",
        """
        client = socket.socket(socket.AF_UNIX)
        client.connect("\\0$TOKEN")
        return True
        """,
    ),
    probe(
        "unix_socket_of_host",
        """
        client = socket.socket(socket.AF_UNIX)
        client.connect("$FOLDER/socket")
        return True
        """,
    ),
    probe(
        "abstract_unix_socket_of_an_earlier_execution",
        """
        client = socket.socket(socket.AF_UNIX)
        client.connect("\\0$TOKEN-earlier")
        return True
        """,
        before=[
            Command(
                code="import os, socket, time\nserver = socket.socket(socket.AF_UNIX)\n"
                "server.bind('\\0$TOKEN-earlier')\nserver.listen()\n"
                "if os.fork() == 0:\n    os.setsid()\n    time.sleep(30)\n"
            )
        ],
    ),
]

_OF_OTHERS = """
for pid in (1, $VICTIM):
    try:
        return {}
    except OSError as error:
        print("held:", error)
"""
FILES = [
    probe("file_of_host", 'return open("$FOLDER/secret").read()'),
    probe("etc_shadow", 'return open("/etc/shadow").read()', as_root=True),
    probe(
        "homes_and_variable_data",
        'return [p for p in ("/home", "/var", "/run", "/srv", "/mnt", "/opt/secret") if os.path.isdir(p)]',
    ),
    probe("environment_of_others", _OF_OTHERS.format('open(f"/proc/{pid}/environ", "rb").read()')),
    probe("root_of_others", _OF_OTHERS.format('os.listdir(f"/proc/{pid}/root/")')),
    probe("descriptors_of_others", _OF_OTHERS.format('os.listdir(f"/proc/{pid}/fd")')),
    probe("memory_of_others", _OF_OTHERS.format('open(f"/proc/{pid}/mem", "rb", buffering=0)')),
    probe("kernel_settings", 'return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)', as_root=True),
    probe(
        "any_kernel_setting",
        """
        for folder, _, names in os.walk("/proc/sys"):
            for name in names:
                try:
                    return os.open(f"{folder}/{name}", os.O_WRONLY) and f"{folder}/{name}"
                except OSError:
                    pass
        """,
        as_root=True,
    ),
    probe("sys_folder", 'return os.listdir("/sys/kernel")'),
    probe("control_groups", 'return os.listdir("/sys/fs/cgroup")'),
    probe(
        "symlink_as_output",
        'os.symlink("$FOLDER/secret", "leak")',
        outputs=["leak"],
        is_real=lambda plain: plain.shown,
    ),
    probe(
        "symlinked_folder_as_output",
        'os.symlink("$FOLDER", "folder")',
        outputs=["folder/secret"],
        is_real=lambda plain: plain.shown,
    ),
    probe("hardlink_to_host", 'os.link("$FOLDER/secret", "link")\nreturn open("link").read()'),
    probe("mount", 'return 1 + checked(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))', prefix=_OWN_MOUNTS),
    probe(
        "remount",
        'return 1 + checked(libc.mount(None, b"/usr", None, 32 | 4096, None))',
        prefix=(*_OWN_MOUNTS, "sh", "-c", 'mount --bind /usr /usr && exec "$@"', "sh"),
    ),
    probe("unmount", 'return 1 + checked(libc.umount2(b"/proc", 2))', prefix=_OWN_MOUNTS),
    probe("chroot", 'os.chroot("/tmp")\nreturn True', as_root=True),
    probe("device_node", 'os.mknod("node", 0o600 | stat.S_IFCHR, os.makedev(1, 3))\nreturn True', as_root=True),
    probe(
        "devices",
        """
        expected = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm", "mqueue",
                    "core", "pts", "ptmx", "tty", "console"}
        return set(os.listdir("/dev")) - expected
        """,
    ),
    probe("system_file", 'return open(os.__file__, "r+b")', as_root=True),
    probe("system_folder", 'return os.open("/usr/bin", os.O_TMPFILE | os.O_RDWR)', as_root=True),
    probe("preload_for_everybody", 'return os.open("/etc", os.O_TMPFILE | os.O_RDWR)', as_root=True),
    probe(
        "sitecustomize_for_everybody",
        'return [os.open(p, os.O_TMPFILE | os.O_RDWR) for p in sys.path if "python3" in p and os.path.isdir(p)]',
        as_root=True,
    ),
    probe(
        "shared_memory_of_host",
        'open("/dev/shm/$TOKEN", "w").write("$SECRET")\nprint("held")',
        is_real=lambda plain: plain.shown,
    ),
    probe(
        "sparse_file",
        'with open("large", "w") as file:\n    os.truncate(file.fileno(), 1 << 40)\nreturn True',
        expected=ends_with(-signal.SIGXFSZ),
    ),
    probe(
        "many_inodes",
        'for i in range(25_000):\n    os.close(os.open(f"/dev/shm/$TOKEN.{i}", os.O_CREAT | os.O_WRONLY))\nreturn i',
        limits=Limits(wall_s=20.0, cpu_s=10, memory_mb=128),
    ),
    probe(
        "disk_full",
        'for i in range(20):\n    open(f"{i}", "wb").write(bytes(10 << 20))\nreturn i',
        expected=bounded,
    ),
    probe(
        "write_to_inherited_descriptors",
        """
        for number in range(3, 1024):
            try:
                os.write(number, b"x")
            except OSError:
                continue
            return number
        """,
    ),
]

PROCESSES = [
    probe("signal_to_host", "os.kill($VICTIM, 0)\nreturn True"),
    probe(
        "signal_to_all",
        """
        if os.fork() == 0:
            time.sleep(30)
        os.kill(-1, signal.SIGKILL)
        print("held")
        """,
        # A bystander in the same namespace is killed, too; the shell is its process 1.
        prefix=("unshare", "-pf", "--kill-child", "sh", "-c", 'sleep 9 & "$@"; wait $!; echo bystander $?', "sh"),
        is_real=lambda plain: "bystander 137" in plain.stdout,
        expected=lambda result: result.exit_code in (0, -9) and not result.timed_out,
    ),
    probe("trace_host", "return 1 + checked(libc.ptrace(0x4206, $VICTIM, 0, 0))"),
    probe(
        "fork_bomb",
        """
        for count in range(300):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
        return count
        """,
        limits=Limits(wall_s=20.0, processes=32),
    ),
    probe(
        "fork_bomb_without_end",
        """
        for _ in range(10**9 if $IN_BOX else 5):
            try:
                os.fork()
            except OSError:
                pass
        time.sleep(60)
        """,
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=lambda plain: plain.num_left >= 31,
    ),
    probe(
        "thread_bomb",
        """
        threading.stack_size(64 * 1024)
        for count in range(300):
            threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        return count
        """,
        limits=Limits(wall_s=20.0, processes=32),
    ),
    probe(
        "daemon",
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in (0, 1, 2):
                    os.close(number)
                time.sleep(60)
            os._exit(0)
        print("held")
        """,
        is_real=lambda plain: plain.num_left > 0,
    ),
    probe(
        "daemon_that_holds_the_pipes",
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nprint('held')",
        is_real=lambda plain: plain.num_left > 0,
    ),
    probe(
        "deaf_to_signals",
        """
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        time.sleep(60)
        """,
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=lambda plain: plain.is_deaf,
    ),
    probe(
        "stops_itself",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=runs_on,
    ),
    probe(
        "kills_itself",
        "os.kill(os.getpid(), signal.SIGKILL)",
        expected=ends_with(-9),
        is_real=lambda plain: plain.exit_code == -9,
    ),
    probe("leaves_at_once", "os._exit(7)", expected=ends_with(7), is_real=lambda plain: plain.exit_code == 7),
    probe(
        "segmentation_fault",
        "ctypes.string_at(0)",
        expected=ends_with(-11),
        is_real=lambda plain: plain.exit_code == -11,
    ),
    probe(
        "real_time_priority", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\nreturn True", as_root=True
    ),
    probe("higher_priority", "os.nice(-5)\nreturn True", as_root=True),
    probe(
        "higher_limits",
        """
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
        return highest > 1_000
        """,
    ),
    probe(
        "closes_its_pipes_and_runs_on",
        "os.close(0), os.close(1), os.close(2)\ntime.sleep(60)",
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=runs_on,
    ),
    probe("busy_loop", "while True:\n    pass", limits=BRIEF, plain_s=1.5, expected=timed_out, is_real=runs_on),
    probe(
        "loop_below_python",
        "signal.signal(signal.SIGTERM, lambda *_: None)\nreturn sum(range(10**12))",
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=lambda plain: plain.is_deaf,
    ),
    probe(
        "cpu_time",
        "while True:\n    pass",
        limits=Limits(wall_s=20.0, cpu_s=1),
        expected=lambda result: result.exit_code in (-signal.SIGXCPU, -signal.SIGKILL) and not result.timed_out,
        is_real=runs_on,
        plain_s=2.0,
    ),
    probe(
        "time_bomb_at_exit",
        "import atexit\natexit.register(time.sleep, 60)\nprint('held')",
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=runs_on,
    ),
    probe(
        "thread_that_never_ends",
        "threading.Thread(target=time.sleep, args=(60,)).start()\nprint('held')",
        limits=BRIEF,
        plain_s=1.5,
        expected=timed_out,
        is_real=runs_on,
    ),
]

_GROW = "return len([bytearray(b'x' * (4 << 20)) for _ in range(120)])"
MEMORY = [
    probe("memory_at_once", "return len(b'x' * (1 << 30))", expected=bounded),
    probe("memory_slowly", _GROW, expected=bounded),
    probe(
        "shared_mapping",
        """
        area = mmap.mmap(-1, 480 << 20)
        for start in range(0, len(area), 4096):
            area[start] = 1
        return len(area)
        """,
        expected=bounded,
    ),
    probe(
        "memory_of_many_processes",
        """
        for _ in range(8):
            if os.fork() == 0:
                try:
                    held = bytearray(b"x" * (60 << 20))
                    time.sleep(1.5)
                except MemoryError:
                    os._exit(1)
                os._exit(0)
        codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(8)]
        return codes == [0] * 8
        """,
        expected=bounded,
    ),
    probe(
        "memory_of_nobody",
        """
        files = []
        for _ in range(40):
            files.append(os.memfd_create("x"))
            os.write(files[-1], bytes(12 << 20))
        return len(files)
        """,
        expected=bounded,
    ),
    probe(
        "system_v_shared_memory",
        """
        libc.shmat.restype = ctypes.c_void_p
        for count in range(40):
            number = checked(libc.shmget(0, 12 << 20, 0o1600))
            address = libc.shmat(number, None, 0)
            if address in (None, ctypes.c_void_p(-1).value):
                raise MemoryError
            ctypes.memset(address, 1, 12 << 20)
            libc.shmctl(number, 0, None)
            if count % 4:
                libc.shmdt(ctypes.c_void_p(address))
        return count
        """,
        expected=bounded,
        is_real=lambda plain: "ESCAPED" in plain.stdout,
    ),
    probe(
        "shared_memory_folder",
        'for i in range(24):\n    open(f"/dev/shm/$TOKEN.{i}", "wb").write(bytes(10 << 20))\nreturn i',
        expected=bounded,
    ),
]

OUTPUT = [
    probe(
        "flood_of_stdout",
        "piece = b'x' * (1 << 16)\nwhile True:\n    os.write(1, piece)",
        limits=BRIEF,
        plain_s=1.5,
        expected=lambda result: timed_out(result) and result.stdout_truncated and 20_000 < len(result.stdout) < 20_100,
        is_real=lambda plain: plain.num_bytes > 10_000_000,
    ),
    probe(
        "flood_of_stderr",
        "piece = b'x' * (1 << 16)\nfor _ in range(2000):\n    os.write(2, piece)\nprint('held')",
        expected=lambda result: held(result) and result.stderr_truncated and 20_000 < len(result.stderr) < 20_100,
        is_real=lambda plain: plain.num_bytes > 10_000_000,
    ),
]

# The two halves never stand one after the other in this code, nor in what it builds.
_SCAN = """
last, first = b"$HEDELN", b"$NEE"
for line in open("/proc/self/maps"):
    span, rights = line.split()[:2]
    if "r" not in rights or "[v" in line:
        continue
    start, end = (int(x, 16) for x in span.split("-"))
    with open("/proc/self/mem", "rb", 0) as memory:
        memory.seek(start)
        try:
            content = memory.read(end - start)
        except OSError:
            continue
        place = content.find(first)
        while place >= 0:
            if content[place + len(first) : place + len(first) + len(last)] == last:
                return line
            place = content.find(first, place + 1)
"""


def _with_secrets(repeats: int) -> Command:
    """Returns a harmless command that has the needle wherever a command can have it; sizes differ, because what is
    freed is written over by the next thing of its size."""
    text = "$NEE$HEDELN" * repeats
    return Command(
        code=f"import sys\ntext = '{text}'\nprint(text, sys.stdin.read())\n"
        "with open('out', 'w') as file:\n    file.write(text)\nprint(text, file=sys.stderr)",
        stdin=text.encode(),
        files={"given": text.encode(), "more": b"$NEE$HEDELN"},
        env={"GIVEN": "$NEE$HEDELN"},
        outputs=["out", "given"],
    )


SECRETS = [
    probe("environment", 'return [v for v in os.environ.values() if "$SECRET" in v]'),
    probe("own_environment_block", 'return b"$SECRET" in open("/proc/self/environ", "rb").read()'),
    probe("trainer_in_own_memory", _SCAN.replace("$NEE", "$SEC").replace("$HEDELN", "$RET")),
    probe(
        "earlier_execution_in_own_memory",
        _SCAN,
        before=[
            *(_with_secrets(repeats) for repeats in (2000, 800, 100, 10, 1)),
            Command(argv=["true", "$NEE$HEDELN"], stdin=b"$NEE$HEDELN"),
        ],
        # Plainly: the secret is in the environment, and so in memory.
    ),
    probe(
        "files_of_an_earlier_execution",
        'return [f for d in (".", "/tmp", "/dev/shm") for f in os.listdir(d) if "$TOKEN" in f]',
        before=[
            Command(
                code="for folder in ('.', '/tmp', '/dev/shm'):\n    open(folder + '/$TOKEN.trace', 'w').write('x')",
            )
        ],
    ),
    probe(
        "processes_of_an_earlier_execution",
        """
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (1, os.getpid()):
                try:
                    line = open(f"/proc/{name}/cmdline", "rb").read()
                except OSError:
                    continue  # it has just ended
                if b"$TOKEN-process" in line:
                    return name
        """,
        before=[Command(argv=["sh", "-c", "setsid sh -c 'sleep 30; : $TOKEN-process' > /dev/null 2>&1 &"])],
    ),
    probe(
        "system_v_memory_of_an_earlier_execution",
        "return 1 + checked(libc.shmget($IPC_KEY, 4096, 0))",
        before=[Command(code="import ctypes\nctypes.CDLL(None).shmget($IPC_KEY, 4096, 0o1666)")],
    ),
    Probe(
        name="poisoned_startup_of_python",
        before=[
            Command(
                code="import os, sys\n"
                "version = 'python%d.%d' % sys.version_info[:2]\n"
                "folders = ['.', '/tmp', os.path.expanduser(f'~/.local/lib/{version}/site-packages')]\n"
                "for folder in folders:\n"
                "    for name in ('sitecustomize.py', 'usercustomize.py', 'json.py', '$TOKEN.pth'):\n"
                "        os.makedirs(folder, exist_ok=True)\n"
                "        is_pth = name.endswith('.pth')\n"
                "        text = 'import sys; sys.stdout.write(chr(69) + \"SCAPED by %s\\\\n\")' % name\n"
                "        if folder != '/tmp' or $IN_BOX:\n"
                "            open(os.path.join(folder, name), 'w').write(text)\n"
            )
        ],
        argv=["$PYTHON", "-c", "import sys; sys.path.insert(0, ''); import json; print('held')"],
    ),
    probe(
        "preload_of_an_earlier_execution",
        'return os.environ.get("LD_PRELOAD") or os.path.exists("/etc/ld.so.preload") or os.path.exists("$TOKEN.so")',
        before=[Command(code="import os\nos.environ['LD_PRELOAD'] = './$TOKEN.so'\nopen('$TOKEN.so', 'w').write('x')")],
    ),
]

PROBES = [*NETWORK, *FILES, *PROCESSES, *MEMORY, *OUTPUT, *SECRETS, *KERNEL, *CHANNELS]
