"""A probe: an attempt of hostile code, its expected end, and the proof by a plain process that the attempt is real."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verl_agentic.sandbox.interface import Command, CommandResult, Limits

LIMITS = Limits(wall_s=20.0, cpu_s=4, memory_mb=128, processes=32, open_files=128, file_mb=16, output_bytes=20_000)
BRIEF = Limits(wall_s=1.0, cpu_s=4, memory_mb=128, processes=32, output_bytes=20_000)

# $NAMES are filled in by the test: what there is to reach outside.
_FRAME = """
import ctypes, errno, glob, mmap, os, resource, signal, socket, stat, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def syscall(number, *arguments):
    return checked(libc.syscall(number, *arguments))
def attempt():
{body}
try:
    found = attempt()
except Exception as error:
    print("held:", type(error).__name__, error, flush=True)
else:
    print("ESCAPED:" if found else "held: nothing", str(found)[:200], flush=True)
"""


@dataclass(frozen=True)
class Plain:
    """Behaviour of a probe as a plain process."""

    stdout: str
    exit_code: int | None
    """None when it was still running after the time."""
    is_deaf: bool
    """Whether it then ran on in spite of SIGTERM."""
    num_bytes: int
    """Printed altogether."""
    num_left: int
    """Processes that it left behind."""
    shown: bool
    """Whether the file that is asked for, or left in shared memory, is there and holds the secret."""


def held(result: CommandResult) -> bool:
    """It was refused, and went on to its end."""
    return result.exit_code == 0 and not result.timed_out and result.stdout.startswith("held")


def timed_out(result: CommandResult) -> bool:
    """It was killed at its deadline."""
    return result.timed_out and result.exit_code == -signal.SIGKILL


def bounded(result: CommandResult) -> bool:
    """It got no more memory: Python said so, or the kernel killed it."""
    refused = held(result) or "MemoryError" in result.stderr
    return not result.timed_out and (refused or result.oom or result.exit_code == -signal.SIGKILL)


def ends_with(exit_code: int) -> Callable[[CommandResult], bool]:
    """It ended like this, by itself."""
    return lambda result: result.exit_code == exit_code and not result.timed_out and not result.oom


def escaped(plain: Plain) -> bool:
    return "ESCAPED" in plain.stdout


def runs_on(plain: Plain) -> bool:
    return plain.exit_code is None


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One attempt."""

    name: str
    code: str = ""
    argv: Sequence[str] = ()
    """Run instead of the code."""
    before: Sequence[Command] = ()
    """Executions that come first, whose traces are looked for."""
    outputs: Sequence[str] = ()
    limits: Limits = LIMITS
    expected: Callable[[CommandResult], bool] = held
    is_real: Callable[[Plain], bool] = escaped
    """Tells whether an unrestricted plain process shows that the attempt is real."""
    plain_s: float = 20.0
    """Time limit of the plain process, in seconds."""
    prefix: Sequence[str] = ()
    """Put before the plain process: namespaces of its own, where the attempt would hurt this machine."""
    as_root: bool = False
    """True when a plain process succeeds only as root."""
    needs: frozenset[str] = field(default=frozenset())
    """Properties of this machine without which the attempt is not real: `x86_64`."""


def probe(name: str, body: str, **options: object) -> Probe:
    code = _FRAME.format(body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))
    return Probe(name=name, code=code, **options)  # type: ignore[arg-type]
