"""The zygote: a Python process with its imports loaded, from which every box is forked.

The trainer executes it with an empty environment. A fork would copy the trainer's memory, secrets included, into every
box.

    python -I -S -c "...; main()" FD     FD: a Unix socket; its other end is the zygote's life
"""

from __future__ import annotations

import _socket  # without the `socket` module, whose page tables every program would copy
import contextlib
import gc
import itertools
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from . import box, child, frames, rootfs, shared_trees, syscalls
from .syscalls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, NEWUTS

_MAX_BOXES = 32_000  # pairs of users that a zygote has
_box_numbers = itertools.count()


class Kind(NamedTuple):
    """The kind of isolation of boxes."""

    enter: Callable[[frames.Connection, dict[str, Any]], None]
    """Moves the zygote into the environment of its boxes."""
    namespaces: Callable[[dict[str, Any]], int]
    """Flags of the new namespaces of a box."""
    admit: Callable[[int, int, dict[str, Any]], None]
    """Performs the outside part of a new box's setup, given its pid and number."""
    begin: Callable[[int, dict[str, Any]], None]
    """Switches a new process to the box's user."""
    build: Callable[[frames.Connection, int, dict[str, Any]], box.Box]
    """Isolates this process and returns the box."""
    end: signal.Signals
    """Signal that ends a box with everything in it."""


def main(kind: Kind | None = None) -> None:
    """Loads the imports, then makes boxes until the trainer's end is closed."""
    kind = kind or _NAMESPACES
    control = _socket.socket(fileno=int(sys.argv[1]))
    trainer = frames.Connection(control.fileno(), control.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle
    try:
        config, _ = trainer.receive()
        kind.enter(trainer, config)
        sys.path += config["python_path"]
        child.load(config["imports"])
        gc.collect()
        gc.freeze()
    except BaseException as error:
        with contextlib.suppress(OSError):
            trainer.send({"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
        return
    trainer.send({"ready": True, "python": sys.version.split()[0]})
    _serve_trainer(control, config, kind)


def _enter_namespaces(trainer: frames.Connection, config: dict[str, Any]) -> None:
    """Enters namespaces with the sandbox's file system."""
    has_host_network = config["network"] and not config["hosts"]
    syscalls.unshare(NEWUSER | NEWNS | NEWIPC | NEWUTS | (0 if has_host_network else NEWNET))
    if config["hosts"]:
        syscalls.raise_loopback()
    trainer.send({"unshared": os.getpid()})
    trainer.receive()  # the trainer has written the maps of users
    interpreter, extra_paths = rootfs.open_given(config["interpreter"]), rootfs.open_given(config["read_only"])
    hidden = [] if config["host_packages"] else rootfs.host_packages()
    if config["change_user"]:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # or its children's maps could not be written
    rootfs.build(config["base"], interpreter=interpreter, hidden=hidden, extra_paths=extra_paths, hosts=config["hosts"])


def _serve_trainer(control: _socket.socket, config: dict[str, Any], kind: Kind) -> None:
    wake_read, wake_write = os.pipe()
    for descriptor in (wake_read, wake_write):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Also checks the trainer itself, because its forked processes may hold the connection open.
    trainer = os.pidfd_open(os.getppid())
    is_open = True
    while is_open:
        ready, _, _ = select.select([control, wake_read, trainer], [], [])
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            _reap_boxes()
        is_open = trainer not in ready and (control not in ready or _answer_one(control, config, kind))
    _end_boxes(kind.end)


def _reap_boxes() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_boxes(end: signal.Signals) -> None:
    """Ends all boxes before the zygote ends."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        boxes = [int(pid) for pid in file.read().split()]
    for pid in boxes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, end)
    for pid in boxes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _answer_one(control: _socket.socket, config: dict[str, Any], kind: Kind) -> bool:
    """Makes a box, adds a shared tree or removes one; False if the trainer has gone."""
    text, ancillary, _, _ = control.recvmsg(4096, _socket.CMSG_SPACE(4))
    if not text:
        return False
    request = json.loads(text)
    descriptor = int.from_bytes(ancillary[0][2][:4], sys.byteorder) if ancillary else -1
    if request["op"] == "box":
        _make_box(control, descriptor, config, kind)
        return True
    try:
        if request["op"] == "add":
            options = {name: request[name] for name in ("body_size", "num_files")}
            answer = {"problem": shared_trees.add(request["number"], descriptor, **options)}
            os.close(descriptor)
        else:
            shared_trees.remove(request["number"])
            answer = {"problem": ""}
    except OSError as error:
        answer = {"problem": str(error)}
    control.sendall(json.dumps(answer).encode() + b"\n")
    return True


def _make_box(control: _socket.socket, socket_descriptor: int, config: dict[str, Any], kind: Kind) -> None:
    """Makes a box for a connection."""
    connection = _socket.socket(fileno=socket_descriptor)
    gate_read, gate_write = os.pipe()
    zygote, number = os.pidfd_open(os.getpid()), next(_box_numbers)
    try:
        pid = syscalls.fork_into(kind.namespaces(config))
        if pid == 0:
            control.close()
            os.close(gate_write)
            _become_box(connection, config, kind, number, gate=gate_read, zygote=zygote)
        kind.admit(pid, number, config)
        os.write(gate_write, b"x")
        control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    except OSError as error:
        control.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
    finally:
        connection.close()
        for descriptor in (gate_read, gate_write, zygote):
            os.close(descriptor)


def _map_users(pid: int, number: int, config: dict[str, Any]) -> None:
    """Maps the users of a box: two separate ones if possible, because the kernel counts some resources (descriptors in
    transit, pipes, queues) per user.
    """
    first = 1 + 2 * (number % _MAX_BOXES)
    for name, own_id in (("uid_map", config["user"]), ("gid_map", config["group"])):
        if name == "gid_map" and not config["change_user"]:
            with open(f"/proc/{pid}/setgroups", "w") as file:
                file.write("deny")
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(f"0 {first} 1\n1000 {first + 1} 1\n" if config["change_user"] else f"{own_id} {own_id} 1\n")


def _become_box(
    connection: _socket.socket, setup: dict[str, Any], kind: Kind, number: int, *, gate: int, zygote: int
) -> None:
    """Never returns."""
    trainer = frames.Connection(connection.fileno(), connection.fileno())
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if os.read(gate, 1) != b"x":
            os._exit(1)
        os.close(gate)
        kind.begin(number, setup)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, kind.end)  # the zygote's end is its end
        if select.select([zygote], [], [], 0)[0]:
            os._exit(1)  # which has come before the line above
        os.close(zygote)
        kind.build(trainer, number, setup).serve()
    except BaseException:
        with contextlib.suppress(BaseException):
            trainer.send({"error": traceback.format_exc()})
    finally:
        os._exit(0)


def _choose_namespaces(config: dict[str, Any]) -> int:
    return NEWUSER | NEWPID | NEWNS | NEWIPC | NEWUTS | (0 if config["network"] else NEWNET)


def _switch_user(number: int, setup: dict[str, Any]) -> None:
    if setup["change_user"]:
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)


def _build_box(trainer: frames.Connection, number: int, setup: dict[str, Any]) -> box.Box:
    syscalls.bound_capabilities()
    shared = shared_trees.open_covered()
    return box.Box(trainer, setup, proc=rootfs.make_private(disk_mb=setup["disk_mb"]), shared=shared)


_NAMESPACES = Kind(
    enter=_enter_namespaces,
    namespaces=_choose_namespaces,
    admit=_map_users,
    begin=_switch_user,
    build=_build_box,
    end=signal.SIGKILL,
)
