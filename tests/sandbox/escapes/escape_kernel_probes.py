"""Probes that call the kernel for what would lead out of any namespace."""

from __future__ import annotations

import signal

from escape_probe import ends_with, probe

from verl_agentic.sandbox.inside import syscalls

_NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "fanotify_init": (300, 262),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "name_to_handle_at": (303, 264),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "process_vm_readv": (310, 270),
    "syslog": (103, 116),
    "fsopen": (430, 430),
    "userfaultfd": (323, 282),
}


def _number(name: str) -> int:
    return _NUMBERS[name][("x86_64", "aarch64").index(syscalls.machine())]


_SYSCALLS: dict[str, str] = {
    "keyring_add": f'key = syscall({_number("add_key")}, b"user", b"escape", b"x", 1, -2)\nreturn key',
    "keyring_join": f"return syscall({_number('keyctl')}, 1, None)",
    "io_uring": f"return syscall({_number('io_uring_setup')}, 4, ctypes.create_string_buffer(120))",
    "bpf": f"return syscall({_number('bpf')}, 0, struct.pack('IIIIIIIQI', 2, 4, 4, 1, 0, 0, 0, 0, 0) + bytes(80), 72)",
    "perf_event": f"""
        attributes = struct.pack("IIQ", 1, 112, 1) + bytes(96)
        return syscall({_number("perf_event_open")}, attributes, 0, -1, -1, 0)""",
    "userfaultfd": f"return syscall({_number('userfaultfd')}, 0)",
    "fsopen": f'return syscall({_number("fsopen")}, b"tmpfs", 0)',
    "open_tree": f'return syscall({_number("open_tree")}, -100, b"/", 1)',
    "name_to_handle": f"""
        handle, where = ctypes.create_string_buffer(struct.pack("II", 128, 0), 200), ctypes.c_int()
        syscall({_number("name_to_handle_at")}, -100, b"/usr", handle, ctypes.byref(where), 0)
        return True""",
    "process_vm_readv": f"""
        target = ctypes.c_void_p(int(open("/proc/$VICTIM/maps").read().split("-")[0], 16))
        buffer = ctypes.create_string_buffer(16)
        ours = struct.pack("QQ", ctypes.addressof(buffer), 16)
        theirs = struct.pack("QQ", target.value, 16)
        return syscall({_number("process_vm_readv")}, $VICTIM, ours, 1, theirs, 1, 0) > 0""",
    "pidfd_getfd": f"""
        descriptor = os.pidfd_open($VICTIM)
        return syscall({_number("pidfd_getfd")}, descriptor, 0, 0) >= 0""",
    "fanotify": f"return syscall({_number('fanotify_init')}, 0, 0) + 1",
    "kernel_log": f"return syscall({_number('syslog')}, 10, None, 0)",
    "personality": f"return syscall({_number('personality')}, 0x0040000) + 1",
    "asynchronous_io": f"""
        context = ctypes.c_ulong()
        return 1 + syscall({_number("io_setup")}, 64, ctypes.byref(context))""",
    "kcmp": f"return syscall({_number('kcmp')}, os.getpid(), $VICTIM, 1, 0, 0) + 1",
}

KERNEL = [
    *(probe(name, body, as_root=True) for name, body in _SYSCALLS.items()),
    probe("user_namespace", "return 1 + checked(libc.unshare(0x10000000))", as_root=True),
    probe("network_namespace", "return 1 + checked(libc.unshare(0x40000000))", as_root=True),
    probe(
        "user_namespace_by_clone",
        f"""
        pid = libc.syscall({syscalls._NUMBERS[syscalls.machine()]["clone"]}, 0x10000000 | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        return checked(pid)
        """,
        as_root=True,
    ),
    probe(
        "user_namespace_by_clone3",
        """
        arguments = struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
        pid = libc.syscall(435, arguments, len(arguments))
        if pid == 0:
            os._exit(0)
        return checked(pid)
        """,
        as_root=True,
    ),
    probe(
        "enter_namespaces",
        'return 1 + checked(libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0))',
        as_root=True,
    ),
    probe("host_name", 'return 1 + checked(libc.sethostname(b"escape", 6))', prefix=("unshare", "-u")),
    probe(
        "capabilities",
        """
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
        return [status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb") if int(status[name], 16)]
        """,
        as_root=True,
    ),
    probe(
        "new_privileges",
        """
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
        return status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2"
        """,
    ),
    probe(
        "call_of_another_architecture",
        """
        area = mmap.mmap(-1, 4096, prot=7)
        area.write(bytes.fromhex("b814000000cd80c3"))  # getpid, as 32-bit programs ask for it
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
        return call() == os.getpid()
        """,
        expected=ends_with(-signal.SIGSYS),
        needs=frozenset({"x86_64"}),
    ),
]
