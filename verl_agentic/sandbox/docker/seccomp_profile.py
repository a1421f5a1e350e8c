"""The allowed system calls of a container, as a profile for engines.

It excludes two that many engines allow: io_uring, which bypasses filters of system calls, and changing the limits of
another process, with which code could end process 1.
"""

from __future__ import annotations

import json
from typing import Any

_ALLOWED = """
accept accept4 access alarm arch_prctl bind brk capget capset chdir chmod chown clock_getres clock_gettime
clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr
fsetxattr fstat fstatfs fsync ftruncate futex futex_waitv futimesat getcpu getcwd getdents getdents64 getegid geteuid
getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid
getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr get_robust_list get_thread_area
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup
io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown
lgetxattr link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise membarrier memfd_create
mincore mkdir mkdirat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend
mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat openat2
pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2
pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg removexattr rename
renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto
set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown
sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill
time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork wait4 waitid write writev
"""
_NAMESPACE_FLAGS = 0x7E02_0000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_ENOSYS = 38


def profile() -> str:
    """Returns the profile, as the engine takes it in `security_opt`."""
    rules = [
        _rule(*_ALLOWED.split()),
        _rule("clone", args=[_argument(0, "SCMP_CMP_MASKED_EQ", _NAMESPACE_FLAGS)]),
        # Its flags are in memory, which a filter cannot read. The C library falls back to clone.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        _rule("prlimit64", args=[_argument(0, "SCMP_CMP_EQ", 0)]),  # one's own
        _rule("prlimit64", args=[_argument(2, "SCMP_CMP_EQ", 0)]),  # only to read them
        *(_rule("socket", args=[_argument(0, "SCMP_CMP_EQ", family)]) for family in (_AF_UNIX, _AF_INET, _AF_INET6)),
        _rule("socketpair", args=[_argument(0, "SCMP_CMP_EQ", _AF_UNIX)]),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})


def _rule(*names: str, args: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": args or []}


def _argument(index: int, comparison: str, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": 0, "op": comparison}
