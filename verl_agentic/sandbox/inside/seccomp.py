"""Denied system calls of untrusted code, as a BPF program.

This is a deny list: namespaces, uid, capabilities and limits isolate; the filter closes known ways around them (mounts,
nested namespaces, keyrings, io_uring, BPF, ptrace).
"""

from __future__ import annotations

import struct

_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NAMESPACE_FLAGS = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_NO_STREAM = 2  # a bit of the types of sockets that may be connected again: datagrams, raw ones

# System call -> number on (x86_64, aarch64); None if the architecture lacks the call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# Memory that no process maps; only a control group counts it.
_HIDDEN_MEMORY: dict[str, tuple[int | None, int | None]] = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "msgget": (68, 186),
    "shmget": (29, 194),
}
# Objects shared with the machine without an IPC namespace, and calls without Landlock rules: watching a folder reveals
# names, and owners can change attributes and flags of unopened files.
_SHARED: dict[str, tuple[int | None, int | None]] = {
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "ioprio_set": (251, 30),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
}
# Modes and owners of files, which would include the trainer's if the user is the same.
_MODES: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "chown": (92, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "lchown": (94, None),
}
# Effects on other processes of the same user without a signal; allowed on itself (process 0).
_TO_PROCESSES = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
_SETPRIORITY = (141, 140)
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_X32_BIT = 0x40000000
_GROUP = 8


def program(
    machine: str, *, network: bool, hidden_memory: bool, is_alone: bool = True, has_own_user: bool = True
) -> bytes:
    """Returns the filter for an architecture.

    Args:
        machine: `x86_64` or `aarch64`.
        network: True allows the socket families of the internet, within the network namespace.
        hidden_memory: True allows memory that belongs to no process.
        is_alone: False for code without its own namespaces: denies calls without Landlock rules, including all Unix
            sockets except connected pairs.
        has_own_user: False if the trainer is the same user: denies changes of modes and owners of files.
    """
    column = ("x86_64", "aarch64").index(machine)
    code = _Code()
    code.load(_ARCH)
    code.jump(_EQUAL, _AUDIT_ARCH[machine], 1, 0)
    code.answer(_KILL_PROCESS)  # a 32-bit call has other numbers
    code.load(_NUMBER)
    if machine == "x86_64":
        code.jump(_AT_LEAST, _X32_BIT, 0, 1)
        code.answer(_KILL_PROCESS)
    denied = {
        **_DENIED,
        **({} if hidden_memory else _HIDDEN_MEMORY),
        **({} if is_alone else _SHARED),
        **({} if has_own_user else _MODES),
    }
    ordered = sorted(number for numbers in denied.values() if (number := numbers[column]) is not None)
    # Grouped to skip whole groups, because the kernel tests every call number against each new filter.
    for group in (ordered[start : start + _GROUP] for start in range(0, len(ordered), _GROUP)):
        code.jump(_AT_LEAST, group[-1] + 1, len(group) + 1, 0)
        for index, number in enumerate(group):
            code.jump(_EQUAL, number, len(group) - index - 1, index == len(group) - 1)
        code.answer(_ERRNO | _EPERM)
    # Its flags are in memory, which a filter cannot read. The C library falls back to clone.
    code.jump(_EQUAL, _CLONE3[column], 0, 1)
    code.answer(_ERRNO | _ENOSYS)
    code.jump(_EQUAL, _CLONE[column], 0, 4)
    code.load(_FIRST_ARGUMENT)
    code.jump(_ANY_BIT, _NAMESPACE_FLAGS, 0, 1)
    code.answer(_ERRNO | _EPERM)
    code.answer(_ALLOW)
    if is_alone:
        families = [_AF_UNIX, _AF_INET, _AF_INET6] if network else [_AF_UNIX]
        for call in (_SOCKET, _SOCKETPAIR):
            code.jump(_EQUAL, call[column], 0, len(families) + 3)
            code.load(_FIRST_ARGUMENT)
            for index, family in enumerate(families):
                code.jump(_EQUAL, family, len(families) - index, 0)
            code.answer(_ERRNO | _EACCES)
            code.answer(_ALLOW)
    else:
        _keep_to_itself(code, column)
    code.answer(_ALLOW)
    return bytes(code.instructions)


def _keep_to_itself(code: _Code, column: int) -> None:
    """Denies access to processes of the same user and to named sockets."""
    code.jump(_EQUAL, _SOCKET[column], 0, 1)
    code.answer(_ERRNO | _EACCES)
    code.jump(_EQUAL, _SOCKETPAIR[column], 0, 6)
    code.load(_FIRST_ARGUMENT)
    code.jump(_EQUAL, _AF_UNIX, 0, 2)
    code.load(_SECOND_ARGUMENT)
    code.jump(_ANY_BIT, _NO_STREAM, 0, 1)
    code.answer(_ERRNO | _EACCES)
    code.answer(_ALLOW)
    for numbers in (*_TO_PROCESSES.values(), _SETPRIORITY):
        # The first argument is the process. For setpriority it is the kind (0: process) and the second the process.
        arguments = (_FIRST_ARGUMENT, _SECOND_ARGUMENT) if numbers is _SETPRIORITY else (_FIRST_ARGUMENT,)
        code.jump(_EQUAL, numbers[column], 0, 2 * len(arguments) + 2)
        for left, argument in zip(reversed(range(len(arguments))), arguments, strict=True):
            code.load(argument)
            code.jump(_EQUAL, 0, 0 if left else 1, 2 * left)
        code.answer(_ERRNO | _EPERM)
        code.answer(_ALLOW)


class _Code:
    """Instructions, one after the other; jumps are counted in instructions."""

    def __init__(self) -> None:
        self.instructions = bytearray()

    def load(self, offset: int) -> None:
        self._append(_LOAD, 0, 0, offset)

    def jump(self, condition: int, value: int, then: int, otherwise: int) -> None:
        self._append(condition, then, otherwise, value)

    def answer(self, action: int) -> None:
        self._append(_RETURN, 0, 0, action)

    def _append(self, code: int, then: int, otherwise: int, value: int) -> None:
        self.instructions += struct.pack("HBBI", code, then, otherwise, value)
