"""`verl-agentic sandbox run -- PROGRAM ARGUMENTS`: runs a program in a fresh sandbox."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
from dataclasses import asdict

from verl_agentic.base.errors import ConfigError
from verl_agentic.cli.options.option_values import positive, whole
from verl_agentic.sandbox.cli.limit_options import add_backend_options, backend_of
from verl_agentic.sandbox.interface import Backend, Command, CommandResult, Limits

_TIMED_OUT, _SIGNAL = 124, 128  # as timeout(1) and shells have it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_backend_options(parser)
    parser.add_argument(
        "--timeout",
        type=positive,
        default=Limits.wall_s,
        help="stop the program after this many seconds (default %(default)g)",
    )
    parser.add_argument(
        "--memory-mb",
        type=whole(1),
        default=Limits.memory_mb,
        help="give the program this much memory, in MiB (default %(default)d)",
    )
    parser.add_argument("--stdin", action="store_true", help="pass standard input to the program")
    parser.add_argument("--json", action="store_true", help="print the whole result as one JSON object")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="run this program")


def run(args: argparse.Namespace) -> int:
    """Prints the program's output; returns its exit code, 124 after a timeout, 128 + n after signal n."""
    argv = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not argv:
        raise ConfigError('sandbox run needs a program, got none; for example: sandbox run -- python -c "print(1)"')
    limits = Limits(wall_s=args.timeout, cpu_s=int(args.timeout) + 2, memory_mb=args.memory_mb, output_bytes=2**24)
    command = Command(argv=argv, stdin=sys.stdin.buffer.read() if args.stdin else b"")
    backend = backend_of(args)
    name, result = asyncio.run(_run_command(backend, command, limits))
    if args.json:
        fields = {**asdict(result), "signal_name": result.signal_name, "backend": name}
        fields["files"] = {path: base64.b64encode(data).decode() for path, data in result.files.items()}
        print(json.dumps(fields))
    else:
        sys.stdout.write(result.stdout)
        sys.stderr.write(result.stderr)
        _explain_end(result, limits)
    return _exit_code(result)


async def _run_command(backend: Backend, command: Command, limits: Limits) -> tuple[str, CommandResult]:
    """Returns the name of the backend, and the result."""
    try:
        await backend.start()
        sandbox = await backend.create()
        try:
            return backend.name, await sandbox.run(command, limits=limits, fresh=True)
        finally:
            await sandbox.close()
    finally:
        await backend.close()


def _explain_end(result: CommandResult, limits: Limits) -> None:
    if result.timed_out:
        print(f"stopped after {limits.wall_s:g} s", file=sys.stderr)
    elif result.oom:
        print(f"killed: more than {limits.memory_mb} MiB of memory", file=sys.stderr)
    elif result.signal_name:
        print(f"ended by {result.signal_name}", file=sys.stderr)
    if result.truncated:
        print(f"output cut at {limits.output_bytes} bytes", file=sys.stderr)


def _exit_code(result: CommandResult) -> int:
    if result.timed_out:
        return _TIMED_OUT
    return result.exit_code if result.exit_code >= 0 else _SIGNAL - result.exit_code
