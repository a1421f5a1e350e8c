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
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "flock": (73, 32),
    "io_setup": (206, 0),
    "fanotify_init": (300, 262),
    "setrlimit": (160, 164),
    "fallocate": (285, 47),
    "sendmsg": (46, 211),
    "getpriority": (140, 141),
    "sched_getaffinity": (204, 123),
    "sched_getattr": (315, 275),
    "sched_getparam": (143, 121),
    "file_setattr": (469, 469),
    "cachestat": (451, 451),
    "statmount": (457, 457),
}
NEWUSER, NEWNET, SIGCHLD, THREAD = 0x10000000, 0x40000000, 17, 0x3D0F00


def refused(number: int) -> int:
    return 0x00050000 | number


def answer(program: bytes, *, arch: int, number: int, first: int = 0, second: int = 0, third: int = 0) -> int:
    """Returns what the kernel would do with a system call: executes the BPF program on its `struct seccomp_data`."""
    data = struct.pack("<iIQ6Q", number, arch, 0, first, second, third, 0, 0, 0)
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


def ask(
    machine: str, name: str, *arguments: int, network: bool = False, hidden_memory: bool = True, **options: bool
) -> int:
    program = seccomp.program(machine, network=network, hidden_memory=hidden_memory, **options)
    number = CALLS[name][MACHINES.index(machine)]
    named = dict(zip(("first", "second", "third"), arguments, strict=False))
    return answer(program, arch=AUDIT_ARCH[machine], number=number, **named)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_programs_need_is_allowed(machine: str) -> None:
    for name in ("read", "openat", "execve", "mmap", "futex", "exit_group", "memfd_create", "shmget"):
        assert ask(machine, name) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
def test_what_reaches_the_kernel_s_depths_is_refused(machine: str) -> None:
    for name in ("mount", "ptrace", "unshare", "setns", "keyctl", "bpf", "perf_event_open"):
        assert ask(machine, name) == refused(errno.EPERM), name
        assert ask(machine, name, network=True) == refused(errno.EPERM), name
    assert ask(machine, "io_uring_setup") == refused(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("is_alone", [True, False])
def test_only_the_list_is_allowed(machine: str, is_alone: bool) -> None:
    program = seccomp.program(machine, network=True, hidden_memory=True, is_alone=is_alone)
    listed = {numbers[MACHINES.index(machine)] for numbers in seccomp.ALLOWED.values()}
    answers = {number: answer(program, arch=AUDIT_ARCH[machine], number=number) for number in range(1000)}
    allowed = {number for number, value in answers.items() if value == ALLOW}
    assert allowed <= listed and (len(listed - allowed) < 12 or not is_alone)
    flock = CALLS["flock"][MACHINES.index(machine)]
    for number in set(answers) - listed:
        done = 0  # so it says
        expected = done if number == flock else errno.ENOSYS if number >= 424 else errno.EPERM
        assert answers[number] == refused(expected), number


@pytest.mark.sample(1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("is_alone", [True, False])
def test_ways_to_tell_others_something_through_shared_files_are_refused(machine: str, is_alone: bool) -> None:
    for name in ("inotify_init1", "fanotify_init", "io_setup"):
        assert ask(machine, name, is_alone=is_alone) == refused(errno.EPERM), name
    for name in ("cachestat", "statmount", "file_setattr"):  # programs take these for an older kernel
        assert ask(machine, name, is_alone=is_alone) == refused(errno.ENOSYS), name
    commands = {number for number in range(2000) if ask(machine, "fcntl", 3, number, is_alone=is_alone) == ALLOW}
    set_lock, get_lock, set_open_lock, get_open_lock, set_lease, notify = 6, 5, 37, 36, 1024, 1026
    assert {0, 1, 2, 3, 4, set_lock, 1030} <= commands
    refused_ones = {get_lock, set_open_lock, get_open_lock, 38, set_lease, 1025, notify, *range(1035, 1039)}
    assert not commands & refused_ones
    assert not commands & {8, 10, 15}  # signals to others
    for number in (5, 1026):
        assert ask(machine, "fcntl", 3, number, is_alone=is_alone) == refused(errno.EINVAL)


@pytest.mark.parametrize("machine", MACHINES)
def test_requests_to_devices_and_files_are_refused_except_those_of_descriptors_and_terminals(machine: str) -> None:
    for request in (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451):
        assert ask(machine, "ioctl", 0, request) == ALLOW
    put_input, paste, set_flags, set_attributes, reflink, make_loop = (
        *(0x5412, 0x541C, 0x40086602, 0x401C5820, 0x40049409, 0x4C82),
    )
    for request in (put_input, paste, set_flags, set_attributes, reflink, make_loop):
        assert ask(machine, "ioctl", 0, request) == refused(errno.ENOTTY)
        # The kernel ignores the upper half.
        assert ask(machine, "ioctl", 0, request | 0xFFFFFFFF << 32) == refused(errno.ENOTTY)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("is_alone", [True, False])
def test_the_limit_on_core_dumps_stays_and_other_limits_can_be_changed(machine: str, is_alone: bool) -> None:
    core, files, value = 4, 7, 1 << 40
    assert ask(machine, "setrlimit", core, is_alone=is_alone) == ask(
        machine, "prlimit64", 0, core, value, is_alone=is_alone
    )
    assert ask(machine, "setrlimit", core, is_alone=is_alone) == refused(0)  # done, it says
    assert ask(machine, "prlimit64", 0, core, 0, is_alone=is_alone) == ALLOW  # reads it
    assert ask(machine, "prlimit64", 0, files, value, is_alone=is_alone) == ALLOW
    assert ask(machine, "setrlimit", files, is_alone=is_alone) == ALLOW


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


def ask_by_rules(machine: str, name: str, *arguments: int, has_own_user: bool = False) -> int:
    """Asks the filter of code that has no namespaces of its own."""
    return ask(machine, name, *arguments, is_alone=False, has_own_user=has_own_user)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_nothing_is_shared_with_other_programs(machine: str) -> None:
    for name in ("shmget", "shmat", "semget", "msgsnd", "mq_open", "setxattr", "ioprio_set", "sendmsg"):
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
    for name in (
        *("prlimit64", "sched_getattr", "sched_getparam"),
        *("sched_setattr", "sched_setparam", "sched_setscheduler"),
    ):
        assert ask_by_rules(machine, name, 0, 7) == ALLOW, name
        assert ask_by_rules(machine, name, 4711) == refused(errno.EPERM), name
    assert ask_by_rules(machine, "sched_setaffinity", 0, 7) == refused(errno.EPERM)
    assert ask_by_rules(machine, "sched_getaffinity", 4711, 7) == ALLOW  # by number, as threads ask for theirs
    for name in ("setpriority", "getpriority"):
        assert ask_by_rules(machine, name, 0, 0) == ALLOW
        for kind, who in ((0, 4711), (1, 0), (2, 0), (2, 1000)):
            assert ask_by_rules(machine, name, kind, who) == refused(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_space_beyond_the_end_of_a_file_is_refused_where_nothing_limits_it(machine: str) -> None:
    keep_size = 1
    assert ask(machine, "fallocate", 3, keep_size) == ask(machine, "fallocate", 3, 0) == ALLOW
    assert ask_by_rules(machine, "fallocate", 3, 0) == ALLOW
    assert ask_by_rules(machine, "fallocate", 3, keep_size) == refused(errno.EOPNOTSUPP)


@pytest.mark.parametrize("machine", MACHINES)
def test_modes_of_files_can_be_changed_only_by_who_shares_its_user_with_nobody(machine: str) -> None:
    for name in ("chmod", "fchmodat", "fchown"):
        if CALLS[name][MACHINES.index(machine)] is not None:
            assert ask_by_rules(machine, name) == refused(errno.EPERM), name
            assert ask_by_rules(machine, name, has_own_user=True) == ALLOW, name
