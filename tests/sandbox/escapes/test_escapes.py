"""Nothing that code does in a sandbox reaches the machine, outlives its execution or is seen by the next one."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from escape_contenders import CONTENDERS, Contender, Run, UnavailableError
from escape_leaks import Standing, descendants, is_box, wait_for_nothing_left
from escape_probe import Plain, Probe
from escape_probes import PROBES

from verl_agentic.sandbox.interface import Command

TOKEN = f"escape{os.getpid()}x{time.time_ns():x}"
SECRET = f"secret{TOKEN[::-1]}"
NEEDLE = f"needle{TOKEN[::-1]}"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yields the targets outside of the sandbox (sockets, a file, a process) by the names that stand for them."""
    folder = tmp_path_factory.mktemp("outside")
    os.chmod(folder, 0o755)
    (folder / "secret").write_text(SECRET)
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        threading.Thread(target=_echo, args=(udp,), daemon=True).start()
        for address in (f"\0{TOKEN}", str(folder / "socket")):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen(64)
        victim = stack.enter_context(subprocess.Popen(["sleep", "infinity"], stdin=subprocess.PIPE))
        stack.callback(victim.kill)
        yield {
            "$SECRET": SECRET,
            "$SEC": SECRET[:9],
            "$RET": SECRET[9:],
            "$NEE": NEEDLE[:9],
            "$HEDELN": NEEDLE[9:],
            "$TOKEN": TOKEN,
            "$FOLDER": str(folder),
            "$TCP_PORT": str(tcp.getsockname()[1]),
            "$UDP_PORT": str(udp.getsockname()[1]),
            "$VICTIM": str(victim.pid),
            "$IPC_KEY": str(1 + time.time_ns() % 1_000_000_000),
        }


@pytest.fixture(scope="module", params=CONTENDERS, ids=lambda contender: contender.name)
def contender(request: pytest.FixtureRequest, outside: dict[str, str]) -> Iterator[tuple[Contender, Run]]:
    chosen: Contender = request.param
    os.environ["SECRET"] = SECRET  # the trainer has it, as it would have an API key
    try:
        with chosen.open() as run:
            run(Command(code="pass"), PROBES[0].limits)
            yield chosen, run
    except UnavailableError as reason:
        pytest.skip(str(reason))
    finally:
        del os.environ["SECRET"]


@pytest.mark.sample(1, slow=200)
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_contained(probe: Probe, contender: tuple[Contender, Run], outside: dict[str, str]) -> None:
    chosen, run = contender
    if probe.name in chosen.does_not_stop:
        pytest.skip("not claimed; see docs/security.md")
    _skip_where_unreal(probe)
    words = {"$IN_BOX": "True", "$PYTHON": chosen.python, **outside}
    before = Standing.now(TOKEN)
    for command in probe.before:
        run(_filled_command(command, words), probe.limits)
    started = time.monotonic()
    result = run(_command(probe, words), probe.limits)
    took_s = time.monotonic() - started
    assert "ESCAPED" not in result.stdout + result.stderr and SECRET not in result.stdout + str(result.files), result
    assert probe.expected(result), result
    assert result.wall_s <= probe.limits.wall_s + 3.0 and took_s <= probe.limits.wall_s + 5.0
    left = wait_for_nothing_left(before, TOKEN, is_expected=is_box, within_s=3.0)
    assert left == {}
    after = run(Command(code=chosen.look), probe.limits)
    assert after.stdout == "clean\n", (after, "the next execution does not find a clean place")


@pytest.mark.nightly  # it tests the probes, which change rarely
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_the_probe_succeeds_where_nothing_stops_it(probe: Probe, outside: dict[str, str], tmp_path: Path) -> None:
    _skip_where_unreal(probe)
    if (probe.as_root or probe.prefix) and os.geteuid() != 0:
        pytest.skip("only root would succeed")
    words = {"$IN_BOX": "False", "$PYTHON": sys.executable, **outside}
    for command in probe.before:
        filled = _filled_command(command, words)
        for path, data in filled.files.items():
            (tmp_path / path).write_bytes(data)
        earlier = {**os.environ, "HOME": str(tmp_path), "MARK": TOKEN}
        subprocess.run(_argv(filled), cwd=tmp_path, env=earlier, input=filled.stdin, stdout=subprocess.DEVNULL)
    argv = [*probe.prefix, *_argv(_command(probe, words))]
    plain = _run_plainly(argv, tmp_path, outputs=probe.outputs, timeout_s=probe.plain_s)
    assert probe.is_real(plain), plain


def _run_plainly(argv: Sequence[str], folder: Path, *, outputs: Sequence[str], timeout_s: float) -> Plain:
    """Runs a program with nothing around it, and cleans up behind it."""
    environment = {**os.environ, "HOME": str(folder), "SECRET": SECRET, "NEEDLE": NEEDLE, "MARK": TOKEN}
    strangers = descendants(os.getpid())
    with open(os.devnull, "w") as inherited:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[inherited.fileno()],
            start_new_session=True,
        )
    assert process.stdout
    output: list[bytes] = []
    reader = threading.Thread(target=_read, args=(process.stdout, output), daemon=True)
    reader.start()
    exit_code, is_deaf = None, False
    try:
        exit_code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
        is_deaf = process.poll() is None
    left = _kill_marked() - strangers
    process.kill()
    process.wait()
    reader.join(5)
    process.stdout.close()
    text = b"".join(output)
    return Plain(
        stdout=text[:10_000].decode(errors="replace"),
        exit_code=exit_code,
        is_deaf=is_deaf,
        num_bytes=len(text),
        num_left=len(left),
        shown=_was_shown(folder, outputs),
    )


def _read(stream: object, output: list[bytes]) -> None:
    while chunk := os.read(stream.fileno(), 1 << 16):  # type: ignore[attr-defined]
        if sum(map(len, output[-400:])) < 20_000_000:
            output.append(chunk)


def _was_shown(folder: Path, outputs: Sequence[str]) -> bool:
    paths = [*(folder / path for path in outputs), *Path("/dev/shm").glob(f"{TOKEN}*")]
    shown = any(path.is_file() and SECRET in path.read_text(errors="replace") for path in paths)
    for path in Path("/dev/shm").glob(f"{TOKEN}*"):
        path.unlink()
    return shown


def _kill_marked() -> set[int]:
    """Kills every process that has the mark in its environment; returns them."""
    found: set[int] = set()
    while True:
        new = set()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in found and int(name) != os.getpid():
                with suppress(OSError):
                    if f"MARK={TOKEN}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                        os.kill(int(name), signal.SIGKILL)
                        new.add(int(name))
        if not new:
            return found
        found |= new


def _echo(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            data, address = server.recvfrom(100)
            server.sendto(data, address)


def _skip_where_unreal(probe: Probe) -> None:
    missing = probe.needs - {platform.machine()}
    if missing:
        pytest.skip(f"this machine has no {', '.join(sorted(missing))}")


def _command(probe: Probe, words: dict[str, str]) -> Command:
    command = Command(argv=probe.argv, outputs=probe.outputs) if probe.argv else Command(code=probe.code)
    return _filled_command(replace(command, outputs=probe.outputs), words)


def _filled_command(command: Command, words: dict[str, str]) -> Command:
    return replace(
        command,
        code=None if command.code is None else _filled(command.code, words),
        argv=None if command.argv is None else [_filled(text, words) for text in command.argv],
        stdin=_filled(command.stdin.decode(), words).encode(),
        files={path: _filled(data.decode(), words).encode() for path, data in command.files.items()},
        env={name: _filled(value, words) for name, value in command.env.items()},
    )


def _filled(text: str, words: dict[str, str]) -> str:
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


def _argv(command: Command) -> list[str]:
    return list(command.argv) if command.argv is not None else [sys.executable, "-c", str(command.code)]
