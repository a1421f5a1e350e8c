"""Allowed system calls of untrusted code, as a BPF program. Everything else is refused.

The list holds what Python, git, pytest, compilers, Node and Java use. Calls through which programs could exchange data
that share read-only files are refused, too: queries of locks, leases, watching of files and folders. `flock` succeeds
without effect.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a container's Python may be one that cannot subscript it
    _Block = list[tuple[int, int, int, int]]

_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _EINVAL, _ENOTTY, _ENOSYS, _EOPNOTSUPP = 1, 13, 22, 25, 38, 95
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST, _SECOND, _THIRD, _THIRD_HIGH = 0, 4, 16, 24, 32, 36
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NAMESPACE_FLAGS = 0x7E02_0000
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
_NO_STREAM = 2  # a bit of the types of sockets that may be connected again: datagrams, raw ones
_RLIMIT_CORE = 4
_X32_BIT = 0x40000000
_FLOCK = (73, 32)
_FIRST_NEW = 424  # from here on, numbers are the same on every architecture, and the C library expects ENOSYS

# Name and number on x86_64 and aarch64; - if the architecture lacks the call.
_TABLE = """
accept 43 202, accept4 288 242, access 21 -, alarm 37 -, arch_prctl 158 -, bind 49 200, brk 12 214, capget 125 90,
capset 126 91, chdir 80 49, chmod 90 -, chown 92 -, clock_getres 229 114, clock_gettime 228 113,
clock_nanosleep 230 115, clone 56 220, close 3 57, close_range 436 436, connect 42 203, copy_file_range 326 285,
creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21,
epoll_pwait 281 22, epoll_pwait2 441 441, epoll_wait 232 -, eventfd 284 -, eventfd2 290 19, execve 59 221,
execveat 322 281, exit 60 93, exit_group 231 94, faccessat 269 48, faccessat2 439 439, fadvise64 221 223,
fallocate 285 47, fchdir 81 50, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, fchown 93 55, fchownat 260 54,
fcntl 72 25, fdatasync 75 83, fgetxattr 193 10, flistxattr 196 13, fork 57 -, fremovexattr 199 16, fsetxattr 190 7,
fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futex 202 98, futex_waitv 449 449, futimesat 261 -,
get_robust_list 274 100, getcpu 309 168, getcwd 79 17, getdents 78 -, getdents64 217 61, getegid 108 177,
geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102, getpeername 52 205, getpgid 121 155,
getpgrp 111 -, getpid 39 172, getppid 110 173, getpriority 140 141, getrandom 318 278, getresgid 120 150,
getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156, getsockname 51 204, getsockopt 55 209,
gettid 186 178, gettimeofday 96 169, getuid 102 174, getxattr 191 8, ioctl 16 29, kill 62 129,
landlock_add_rule 445 445, landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lchown 94 -,
lgetxattr 192 9, link 86 -, linkat 265 37, listen 50 201, listxattr 194 11, llistxattr 195 12, lremovexattr 198 15,
lseek 8 62, lsetxattr 189 6, lstat 6 -, madvise 28 233, membarrier 324 283, memfd_create 319 279, mincore 27 232,
mkdir 83 -, mkdirat 258 34, mlock 149 228, mlock2 325 284, mlockall 151 230, mmap 9 222, mprotect 10 226,
mq_getsetattr 245 185, mq_notify 244 184, mq_open 240 180, mq_timedreceive 243 183, mq_timedsend 242 182,
mq_unlink 241 181, mremap 25 216, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189, msync 26 227,
munlock 150 229, munlockall 152 231, munmap 11 215, nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56,
openat2 437 437, pause 34 -, pidfd_open 434 434, pidfd_send_signal 424 424, pipe 22 -, pipe2 293 59,
pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288, poll 7 -, ppoll 271 73, prctl 157 167, pread64 17 67,
preadv 295 69, preadv2 327 286, prlimit64 302 261, pselect6 270 72, pwrite64 18 68, pwritev 296 70, pwritev2 328 287,
read 0 63, readahead 187 213, readlink 89 -, readlinkat 267 78, readv 19 65, recvfrom 45 207, recvmmsg 299 243,
recvmsg 47 212, removexattr 197 14, rename 82 -, renameat 264 38, renameat2 316 276, restart_syscall 219 128,
rmdir 84 -, rseq 334 293, rt_sigaction 13 134, rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138,
rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240,
sched_get_priority_max 146 125, sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getattr 315 275,
sched_getparam 143 121, sched_getscheduler 145 120, sched_rr_get_interval 148 127, sched_setaffinity 203 122,
sched_setattr 314 274, sched_setparam 142 118, sched_setscheduler 144 119, sched_yield 24 124, seccomp 317 277,
select 23 -, semctl 66 191, semget 64 190, semop 65 193, semtimedop 220 192, sendfile 40 71, sendmmsg 307 269,
sendmsg 46 211, sendto 44 206, set_robust_list 273 99, set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151,
setgid 106 144, setgroups 116 159, setitimer 38 103, setpgid 109 154, setpriority 141 140, setregid 114 143,
setresgid 119 149, setresuid 117 147, setreuid 113 145, setrlimit 160 164, setsid 112 157, setsockopt 54 208,
setuid 105 146, setxattr 188 5, shmat 30 196, shmctl 31 195, shmdt 67 197, shmget 29 194, shutdown 48 210,
sigaltstack 131 132, signalfd 282 -, signalfd4 289 74, socket 41 198, socketpair 53 199, splice 275 76, stat 4 -,
statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36, sync_file_range 277 84, sysinfo 99 179, tee 276 77,
tgkill 234 131, time 201 -, timer_create 222 107, timer_delete 226 111, timer_getoverrun 225 109,
timer_gettime 224 108, timer_settime 223 110, timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86,
times 100 153, tkill 200 130, truncate 76 45, umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35, utime 132 -,
utimensat 280 88, utimes 235 -, vfork 58 -, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
"""
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    name: (None if x86 == "-" else int(x86), None if arm == "-" else int(arm))
    for name, x86, arm in (entry.split() for entry in _TABLE.split(","))
}
# Not F_GETLK, which tells of the locks of others on a file that nobody may write. Nor leases, F_NOTIFY, OFD locks and
# hints, nor signals to others (F_SETOWN). A lock for writing needs a descriptor for writing.
FCNTL = {
    "F_DUPFD": 0,
    "F_GETFD": 1,
    "F_SETFD": 2,
    "F_GETFL": 3,
    "F_SETFL": 4,
    "F_SETLK": 6,
    "F_SETLKW": 7,
    "F_DUPFD_CLOEXEC": 1030,
    "F_SETPIPE_SZ": 1031,
    "F_GETPIPE_SZ": 1032,
    "F_ADD_SEALS": 1033,
    "F_GET_SEALS": 1034,
}
# Those of descriptors, pipes and terminals, except the ones that put input into a terminal.
IOCTL = {
    "TCGETS": 0x5401,
    "TCSETS": 0x5402,
    "TCSETSW": 0x5403,
    "TCSETSF": 0x5404,
    "TCSBRK": 0x5409,
    "TCFLSH": 0x540B,
    "TIOCSCTTY": 0x540E,
    "TIOCGPGRP": 0x540F,
    "TIOCSPGRP": 0x5410,
    "TIOCOUTQ": 0x5411,
    "TIOCGWINSZ": 0x5413,
    "TIOCSWINSZ": 0x5414,
    "FIONREAD": 0x541B,
    "FIONBIO": 0x5421,
    "TIOCNOTTY": 0x5422,
    "TIOCGSID": 0x5429,
    "FIONCLEX": 0x5450,
    "FIOCLEX": 0x5451,
    "TCGETS2": 0x802C542A,
    "TCSETS2": 0x402C542B,
    "TCSETSW2": 0x402C542C,
    "TCSETSF2": 0x402C542D,
    "TIOCGPTN": 0x80045430,
    "TIOCSPTLCK": 0x40045431,
    "TIOCGPTPEER": 0x5441,
}
# Memory that no process maps; only a control group counts it.
_HIDDEN_MEMORY = frozenset({"memfd_create", "msgget", "shmget"})
# Objects shared with the machine without an IPC namespace, and attributes of files, for which Landlock has no rules.
# Messages between sockets could hold open files, which nobody would count.
_SHARED = frozenset(
    {
        *("fremovexattr", "fsetxattr", "lremovexattr", "lsetxattr", "removexattr", "setxattr"),
        *("mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink"),
        *("msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop"),
        *("shmat", "shmctl", "shmdt", "shmget", "sendmmsg", "sendmsg"),
    }
)
# Modes and owners of files, which would include the trainer's if the user is the same.
_MODES = frozenset({"chmod", "chown", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "lchown"})
# Attributes of other processes, which they could set for others to read; allowed on itself (process 0). Threads ask for
# their processors by number (Java does), so nobody may set these.
_TO_PROCESSES = (
    *("sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval"),
    *("sched_setattr", "sched_setparam", "sched_setscheduler"),
)


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
    denied = (
        (frozenset() if hidden_memory else _HIDDEN_MEMORY)
        | (frozenset() if is_alone else _SHARED)
        | (frozenset() if has_own_user else _MODES)
    )
    allow = _build_return(_ALLOW)
    blocks = {name: allow for name in ALLOWED if name not in denied}
    blocks.update(_build_checks([AF_UNIX, AF_INET, AF_INET6] if network else [AF_UNIX]))
    if not is_alone:
        blocks.update(_build_shared_checks(blocks["prlimit64"]))
    numbers = {number: block for name, block in blocks.items() if (number := ALLOWED[name][column]) is not None}
    # Locks of whole files do nothing, because read-only files can have them. Java, cargo and others insist on them.
    numbers[_FLOCK[column]] = _build_return(_ERRNO)
    search = _build_search(_build_spans(numbers, has_x32=machine == "x86_64"))
    code: _Block = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),  # a 32-bit call has other numbers
        (_LOAD, 0, 0, _NUMBER),
        *search,
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _build_checks(families: Sequence[int]) -> dict[str, _Block]:
    """Returns the checks of arguments, by call."""
    allow, pretend = _build_return(_ALLOW), _build_return(_ERRNO)
    has_value = _build_if(_THIRD, _EQUAL, 0, _build_if(_THIRD_HIGH, _EQUAL, 0, allow, pretend), pretend)
    of_family = _build_one_of(_FIRST, families, _EACCES)
    return {
        "clone": _build_if(_FIRST, _ANY_BIT, NAMESPACE_FLAGS, _build_return(_ERRNO | _EPERM), allow),
        "fcntl": _build_one_of(_SECOND, [*FCNTL.values()], _EINVAL),
        "ioctl": _build_one_of(_SECOND, [*IOCTL.values()], _ENOTTY),
        # A lower limit on core dumps would start the machine's program for them. Python's tests set it.
        "prlimit64": _build_if(_SECOND, _EQUAL, _RLIMIT_CORE, has_value, allow),
        "setrlimit": _build_if(_FIRST, _EQUAL, _RLIMIT_CORE, pretend, allow),
        "socket": of_family,
        "socketpair": of_family,
    }


def _build_shared_checks(prlimit: _Block) -> dict[str, _Block]:
    """Returns the checks that keep code from processes of the same user, from named sockets and from disk space."""
    allow, refuse, eacces = _build_return(_ALLOW), _build_return(_ERRNO | _EPERM), _build_return(_ERRNO | _EACCES)
    itself = _build_if(_FIRST, _EQUAL, 0, allow, refuse)
    # The first argument is the kind (0: process), the second the process.
    priority = _build_if(_FIRST, _EQUAL, 0, _build_if(_SECOND, _EQUAL, 0, allow, refuse), refuse)
    stream = _build_if(_SECOND, _ANY_BIT, _NO_STREAM, eacces, allow)
    return {
        **dict.fromkeys(_TO_PROCESSES, itself),
        # Other modes ignore the limit on files.
        "fallocate": _build_if(_SECOND, _EQUAL, 0, allow, _build_return(_ERRNO | _EOPNOTSUPP)),
        "getpriority": priority,
        "prlimit64": _build_if(_FIRST, _EQUAL, 0, prlimit, refuse),
        "sched_setaffinity": refuse,
        "setpriority": priority,
        "socket": eacces,
        "socketpair": _build_if(_FIRST, _EQUAL, AF_UNIX, stream, eacces),
    }


def _build_spans(numbers: dict[int, _Block], *, has_x32: bool) -> list[tuple[int, _Block]]:
    """Returns what is answered from which number on; refused calls fill the gaps."""
    ends = {number + 1 for number in numbers}
    spans: list[tuple[int, _Block]] = []
    for number in sorted({0, _FIRST_NEW, *numbers, *ends}):
        block = numbers.get(number, _build_return(_ERRNO | (_EPERM if number < _FIRST_NEW else _ENOSYS)))
        if not spans or spans[-1][1] != block:
            spans.append((number, block))
    return [*spans, (_X32_BIT, _build_return(_KILL_PROCESS))] if has_x32 else spans


def _build_search(spans: Sequence[tuple[int, _Block]]) -> _Block:
    """Returns a binary search, because the kernel tries every number with each new filter."""
    if len(spans) == 1:
        return spans[0][1]
    middle = len(spans) // 2
    low, high = _build_search(spans[:middle]), _build_search(spans[middle:])
    return [(_AT_LEAST, len(low), 0, spans[middle][0]), *low, *high]


def _build_if(argument: int, condition: int, value: int, when_true: _Block, otherwise: _Block) -> _Block:
    return [(_LOAD, 0, 0, argument), (condition, 0, len(when_true), value), *when_true, *otherwise]


def _build_one_of(argument: int, values: Sequence[int], number: int) -> _Block:
    """Returns a block that allows some values of an argument, and refuses others with an error number."""
    tests = [(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, argument), *tests, *_build_return(_ERRNO | number), *_build_return(_ALLOW)]


def _build_return(action: int) -> _Block:
    return [(_RETURN, 0, 0, action)]
