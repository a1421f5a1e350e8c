"""The filter answers as its table says, on both architectures: its program is executed here, step by step."""

from __future__ import annotations

import errno
import struct

import pytest

from verl_agentic.sandbox.inside import seccomp

MACHINES = ("x86_64", "aarch64")
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
ALLOW, KILL = 0x7FFF0000, 0x80000000
CALLS = {
    # name: (x86_64, aarch64), from the kernel's tables, not from the module under test
    "read": (0, 63),
    "openat": (257, 56),
    "execve": (59, 221),
    "mmap": (9, 222),
    "futex": (202, 98),
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "mount": (165, 40),
    "ptrace": (101, 117),
    "unshare": (272, 97),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "exit_group": (231, 94),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchown": (93, 55),
    "msgsnd": (69, 189),
    "semget": (64, 190),
    "shmat": (30, 196),
    "mq_open": (240, 180),
    "setxattr": (188, 5),
    "inotify_init1": (294, 26),
    "ioprio_set": (251, 30),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setpriority": (141, 140),
    "mkdirat": (258, 34),
}
NEWUSER, NEWNET, SIGCHLD, THREAD = 0x10000000, 0x40000000, 17, 0x3D0F00


def refused(number: int) -> int:
    return 0x00050000 | number


def answer(program: bytes, *, arch: int, number: int, first: int = 0, second: int = 0) -> int:
    """Returns what the kernel would do with a system call: executes the BPF program on its `struct seccomp_data`."""
    data = struct.pack("<iIQ6Q", number, arch, 0, first, second, 0, 0, 0, 0)
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator = position = 0
    while True:
        operation, then, otherwise, value = code[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return value
        else:
            is_true = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            position += then if is_true else otherwise


def ask(machine: str, name: str, first: int = 0, *, network: bool = False, hidden_memory: bool = True) -> int:
    program = seccomp.program(machine, network=network, hidden_memory=hidden_memory)
    return answer(program, arch=AUDIT_ARCH[machine], number=CALLS[name][MACHINES.index(machine)], first=first)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_programs_need_is_allowed(machine: str) -> None:
    for name in ("read", "openat", "execve", "mmap", "futex", "exit_group", "memfd_create", "shmget"):
        assert ask(machine, name) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
def test_what_reaches_the_kernel_s_depths_is_refused(machine: str) -> None:
    for name in ("mount", "ptrace", "unshare", "setns", "keyctl", "bpf", "io_uring_setup", "perf_event_open"):
        assert ask(machine, name) == refused(errno.EPERM), name
        assert ask(machine, name, network=True) == refused(errno.EPERM), name


@pytest.mark.parametrize("machine", MACHINES)
def test_every_entry_of_the_table_is_refused(machine: str) -> None:
    program = seccomp.program(machine, network=True, hidden_memory=True)
    for name, numbers in seccomp._DENIED.items():
        number = numbers[MACHINES.index(machine)]
        if number is not None:
            assert answer(program, arch=AUDIT_ARCH[machine], number=number) == refused(errno.EPERM), name


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_and_threads_are_allowed_and_namespaces_are_not(machine: str) -> None:
    assert ask(machine, "clone", SIGCHLD) == ALLOW
    assert ask(machine, "clone", THREAD) == ALLOW
    assert ask(machine, "clone", SIGCHLD | NEWUSER) == refused(errno.EPERM)
    assert ask(machine, "clone", SIGCHLD | NEWNET) == refused(errno.EPERM)
    assert ask(machine, "clone3") == refused(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_the_internet_needs_permission_and_other_families_are_refused_always(machine: str, call: str) -> None:
    unix, inet, inet6, netlink, packet, vsock = 1, 2, 10, 16, 17, 40
    allowed_without = [f for f in (unix, inet, inet6, netlink, packet, vsock) if ask(machine, call, f) == ALLOW]
    allowed_with = [
        f for f in (unix, inet, inet6, netlink, packet, vsock) if ask(machine, call, f, network=True) == ALLOW
    ]
    assert (allowed_without, allowed_with) == ([unix], [unix, inet, inet6])
    assert ask(machine, call, netlink) == refused(errno.EACCES)


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_that_no_process_has_is_refused_where_nobody_counts_it(machine: str) -> None:
    assert ask(machine, "memfd_create", hidden_memory=False) == refused(errno.EPERM)
    assert ask(machine, "shmget", hidden_memory=False) == refused(errno.EPERM)
    assert ask(machine, "mmap", hidden_memory=False) == ALLOW


def test_calls_of_another_architecture_kill() -> None:
    for machine, other in (("x86_64", I386), ("aarch64", ARM)):
        program = seccomp.program(machine, network=True, hidden_memory=True)
        assert answer(program, arch=other, number=1) == KILL
    x86 = seccomp.program("x86_64", network=True, hidden_memory=True)
    assert answer(x86, arch=AUDIT_ARCH["x86_64"], number=0x40000000 | 1) == KILL  # x32


def test_every_jump_ends_inside_the_program() -> None:
    for machine in MACHINES:
        code = list(struct.iter_unpack("<HBBI", seccomp.program(machine, network=True, hidden_memory=False)))
        for position, (operation, then, otherwise, _) in enumerate(code):
            if operation not in (0x20, 0x06):
                assert position + 1 + max(then, otherwise) < len(code)
        assert code[-1][0] == 0x06


def ask_by_rules(machine: str, name: str, first: int = 0, second: int = 0, *, has_own_user: bool = False) -> int:
    """Asks the filter of code that has no namespaces of its own."""
    program = seccomp.program(machine, network=False, hidden_memory=True, is_alone=False, has_own_user=has_own_user)
    number = CALLS[name][MACHINES.index(machine)]
    return answer(program, arch=AUDIT_ARCH[machine], number=number, first=first, second=second)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_nothing_is_shared_with_other_programs(machine: str) -> None:
    for name in ("shmget", "shmat", "semget", "msgsnd", "mq_open", "setxattr", "inotify_init1", "ioprio_set"):
        assert ask_by_rules(machine, name) == refused(errno.EPERM), name
    for name in ("read", "openat", "execve", "mmap", "futex", "exit_group", "mkdirat", "memfd_create"):
        assert ask_by_rules(machine, name) == ALLOW, name
    for name in ("mount", "ptrace", "unshare", "bpf"):
        assert ask_by_rules(machine, name) == refused(errno.EPERM), name
    assert ask_by_rules(machine, "clone", NEWUSER) == refused(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_no_socket_has_a_name(machine: str) -> None:
    unix, stream, datagram, raw, seqpacket = 1, 1, 2, 3, 5
    cloexec = 0o2000000
    for family in (unix, 2, 10, 16, 17, 40):
        assert ask_by_rules(machine, "socket", family, stream) == refused(errno.EACCES)
    for kind in (stream, stream | cloexec, seqpacket):
        assert ask_by_rules(machine, "socketpair", unix, kind) == ALLOW
    for kind in (datagram, datagram | cloexec, raw):  # which can be connected to somebody else later
        assert ask_by_rules(machine, "socketpair", unix, kind) == refused(errno.EACCES)
    assert ask_by_rules(machine, "socketpair", 30, stream) == refused(errno.EACCES)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_a_process_changes_only_itself(machine: str) -> None:
    for name in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"):
        assert ask_by_rules(machine, name, 0, 7) == ALLOW, name
        assert ask_by_rules(machine, name, 4711) == refused(errno.EPERM), name
    assert ask_by_rules(machine, "setpriority", 0, 0) == ALLOW
    for kind, who in ((0, 4711), (1, 0), (2, 0), (2, 1000)):
        assert ask_by_rules(machine, "setpriority", kind, who) == refused(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_modes_of_files_can_be_changed_only_by_who_shares_its_user_with_nobody(machine: str) -> None:
    for name in ("chmod", "fchmodat", "fchown"):
        if CALLS[name][MACHINES.index(machine)] is not None:
            assert ask_by_rules(machine, name) == refused(errno.EPERM), name
            assert ask_by_rules(machine, name, has_own_user=True) == ALLOW, name
