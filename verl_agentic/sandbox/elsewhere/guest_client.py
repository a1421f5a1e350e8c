"""The trainer's end of a box on a machine of a provider: every request is a program that passes it to the box."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from verl_agentic.base.errors import AgenticError, ConfigError, DataError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox import shipped_sources
from verl_agentic.sandbox.boxes.box_client import ENVIRONMENT, BoxClient, BoxSession
from verl_agentic.sandbox.elsewhere.machines import CHUNK_BYTES, ElsewhereConfig, Executed, Machine, Provider, failure
from verl_agentic.sandbox.inside import frames
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, SessionKind
from verl_agentic.web.http_service import Attempts

_logger = logging.getLogger(__name__)
_SOURCES = "/tmp/verl_agentic_sources"
_ANSWER_BYTES = 400_000  # more is read in several programs
_MARK = "verl_agentic:"  # login shells and images may print, too
_KEY_BYTES = 32
_FIRST_PAUSE_S = 0.4
_START = f"""
import json, os, sys, zlib
os.chmod({_SOURCES!r}, 0o600)
with open({_SOURCES!r}, "rb") as file:
    key, given = file.read({_KEY_BYTES}), zlib.decompress(file.read())
{shipped_sources.IMPORTER}
from inside.guest_box import main
print({_MARK!r}, end="")
main(json.loads(sys.argv[1]), key)
"""
# Every process of a machine can read the arguments of the others, so code of an episode could read those of its grader.
_SEAL = """
import hashlib
def seal(key, number, data):
    stream = hashlib.shake_256(key + int(number).to_bytes(8, "little")).digest(len(data))
    return (int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")).to_bytes(len(data), "little")
"""
# base, number, sealed request in base64 or "" for the file. Prints the size and the first bytes of the answer.
_CALL = f"""
import base64, os, socket, sys
{_SEAL}
os.umask(0o077)
base, number, text = sys.argv[1:]
data = base64.b64decode(text) if text else open(base + "/in", "rb").read()
box = socket.socket(socket.AF_UNIX)
box.connect(base + "/socket")
box.sendall(int(number).to_bytes(8, "little") + seal(open(base + "/key", "rb").read(), number, data))
answer = bytearray()
while True:
    piece = box.recv(1 << 20)
    if not piece:
        break
    answer += piece
if len(answer) > {_ANSWER_BYTES}:
    with open(base + "/out", "wb") as file:
        file.write(answer)
print({_MARK!r} + str(len(answer)) + ":" + base64.b64encode(answer[:{_ANSWER_BYTES}]).decode())
"""
_READ = f"""
import base64, sys
with open(sys.argv[1], "rb") as file:
    file.seek(int(sys.argv[2]))
    print({_MARK!r} + base64.b64encode(file.read({_ANSWER_BYTES})).decode())
"""


_functions: dict[str, Any] = {}
exec(_SEAL, _functions)
_seal: Callable[[bytes, str, bytes], bytes] = _functions["seal"]


class GuestMachine:
    """A machine with attempts, deadlines and our errors (`box_client.Life`)."""

    def __init__(self, machine: Machine, provider: Provider, config: ElsewhereConfig) -> None:
        self._machine, self._provider, self._config = machine, provider, config
        self._end: asyncio.Task[None] | None = None
        self._ends_at = time.monotonic() + config.lease_s

    @property
    def left_s(self) -> float:
        """Rest of the lease, in seconds."""
        return self._ends_at - time.monotonic()

    async def execute(self, code: str, *args: str, timeout_s: float) -> str:
        """Runs Python as root and returns the text that it prints after the mark.

        Raises:
            SandboxError: the machine or the program failed.
        """
        argv = [self._config.python, "-I", "-S", "-c", code, *args]
        outcome: Executed = await self._call_provider(
            "a call", lambda: self._machine.execute(argv, timeout_s=int(timeout_s) + 1)
        )
        _, mark, text = outcome.output.rpartition(_MARK)
        if outcome.exit_code != 0 or not mark:
            raise SandboxError(
                f"the machine could not run {self._config.python}, got exit code {outcome.exit_code}: "
                f"{outcome.output[-1000:]}; use an image with Python >= 3.8"
            )
        return text.strip()

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file as root. Raises SandboxError if the machine failed."""
        await self._call_provider("an upload", lambda: self._machine.write(path, data))

    def kill(self) -> None:
        """Starts to remove the machine; may be called again."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_task(self._remove_machine())

    async def ended(self) -> None:
        """Waits until it is removed, or left to the end of its lease."""
        self.kill()
        assert self._end is not None
        await asyncio.shield(self._end)

    async def _remove_machine(self) -> None:
        try:
            await self._call_provider("the removal", self._machine.remove)
        except AgenticError as error:
            if self.left_s > 0:
                _logger.warning("a machine of %s is left until its lease ends: %s", self._provider.name, error)

    async def _call_provider(self, action: str, make: Callable[[], Awaitable[Any]]) -> Any:
        return await call(self._provider, self._config, make, action=action)


async def call(
    provider: Provider,
    config: ElsewhereConfig,
    make: Callable[[], Awaitable[Any]],
    *,
    action: str,
    is_new: bool = False,
) -> Any:
    """Calls a provider until it succeeds. Raises an error of this package after the last attempt."""
    attempts = Attempts(config.max_attempts, first_s=_FIRST_PAUSE_S, max_asked_s=config.deadline_s)
    async for _ in attempts:
        try:
            return await make()
        except Exception as error:
            failed = failure(provider, error, action=action, is_new=is_new)
            if not failed.may_repeat or attempts.is_last:
                raise failed.error from error
            attempts.asked_s = failed.after_s


class GuestClient(BoxClient):
    """A sandbox on a machine of a provider (`sandbox.interface.Sandbox`)."""

    def __init__(
        self, machine: GuestMachine, config: ElsewhereConfig, *, base: str, key: bytes, on_closed: Callable[[], None]
    ) -> None:
        """Takes a machine with a box in the folder `base`, and the key of requests; calls `on_closed` at its end."""
        self._stream: Any = _NoStream()
        super().__init__(asyncio.StreamReader(), self._stream, life=machine, on_closed=on_closed)
        self._machine, self._config, self._base, self._key = machine, config, base, key
        self._numbers = itertools.count(1)

    @property
    def is_usable(self) -> bool:
        """True if it is in its initial state and a call has time before the lease ends."""
        return not self.is_broken and self._machine.left_s > self._config.deadline_s

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        self._check_limits(limits)
        return await super().run(command, limits=limits, fresh=fresh)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> BoxSession:
        self._check_limits(limits)
        return await super().open_session(kind, limits=limits)

    async def _put_entries(self, request: dict[str, Any], entries: list[list[Any]], contents: bytes) -> dict[str, Any]:
        if len(contents) > self._config.disk_mb * 2**20:  # not worth the upload
            raise DataError(
                f"the tree could not be written, got {len(contents)} bytes for a disk of {self._config.disk_mb} MiB; "
                "raise disk_mb"
            )
        return await super()._put_entries(request, entries, contents)

    def _check_limits(self, limits: Limits) -> None:
        if limits.network and not self._config.network:
            raise ConfigError("the machines have no network, got limits with network=True; set network for the backend")
        if limits.wall_s > self._config.lease_s:
            raise ConfigError(
                f"wall_s must be at most the lease of {self._config.lease_s} s, got {limits.wall_s:g}; raise lease_s"
            )

    async def _send_request(
        self, request: dict[str, Any], blob: bytes = b"", *, timeout_s: float = 60.0, may_oom: bool = False
    ) -> tuple[dict[str, Any], bytes]:
        self._box_s = timeout_s
        overall_s = timeout_s + self._config.deadline_s
        return await super()._send_request(request, blob, timeout_s=overall_s, may_oom=may_oom)

    async def _exchange_frames(self, request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        exchange = asyncio.ensure_future(self._exchange_by_program(frames.request(request, blob)))
        self._stream.pending = exchange
        try:
            return await exchange
        except asyncio.CancelledError:
            exchange.cancel()
            if self._is_overdue:
                raise ConnectionAbortedError("no answer in time") from None
            raise
        except AgenticError:
            self._life.kill()
            raise

    async def _exchange_by_program(self, frame: bytes) -> tuple[dict[str, Any], bytes]:
        number = str(next(self._numbers))
        sealed = await asyncio.to_thread(_seal, self._key, number, frame)
        text = base64.b64encode(sealed).decode() if len(sealed) <= CHUNK_BYTES else ""
        if not text:
            await self._machine.write(f"{self._base}/in", sealed)
        reply = await self._machine.execute(_CALL, self._base, number, text, timeout_s=self._box_s)
        size, _, encoded = reply.partition(":")
        answer = bytearray(base64.b64decode(encoded))
        while len(answer) < int(size):
            piece = await self._machine.execute(_READ, f"{self._base}/out", str(len(answer)), timeout_s=self._box_s)
            answer += base64.b64decode(piece)
        if len(answer) < frames.HEADER_SIZE:
            raise EOFError("the box has ended")
        text_size, _ = frames.sizes(bytes(answer[: frames.HEADER_SIZE]))
        end = frames.HEADER_SIZE + text_size
        return frames.parse(bytes(answer[frames.HEADER_SIZE : end])), bytes(answer[end:])


class _NoStream:
    """The parts of a stream's writer and transport that end a call."""

    def __init__(self) -> None:
        self.pending: asyncio.Future[Any] | None = None
        self.transport = self

    def abort(self) -> None:
        """Ends the pending exchange."""
        if self.pending is not None:
            self.pending.cancel()

    close = abort


async def start_box(machine: GuestMachine, config: ElsewhereConfig, *, on_closed: Callable[[], None]) -> GuestClient:
    """Starts a box on a new machine. Raises SandboxUnavailableError if the image cannot hold one."""
    setup = {"imports": list(config.imports), "disk_mb": config.disk_mb, "env": ENVIRONMENT}
    key = secrets.token_bytes(_KEY_BYTES)
    await machine.write(_SOURCES, key + zlib.compress(shipped_sources.sources(), 9))
    greeting: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        greeting = json.loads(await machine.execute(_START, json.dumps(setup), timeout_s=60.0))
    if "base" not in greeting:
        raise SandboxUnavailableError(
            f"the machine cannot hold a box, got {greeting.get('error', 'no greeting')}; use an image of Linux with "
            "Python >= 3.8 and the user root"
        )
    return GuestClient(machine, config, base=greeting["base"], key=key, on_closed=on_closed)
