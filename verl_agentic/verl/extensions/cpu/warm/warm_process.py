"""Forks Ray workers from a process that has imported what most of them import. Started by `warm_workers`.

python -m verl_agentic.verl.extensions.cpu.warm.warm_process FILE_DESCRIPTOR_OF_A_LISTENING_SOCKET
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys

import numpy
import torch
from ray._private import utils
from ray._private.runtime_env.context import RuntimeEnvContext

from verl_agentic.verl.extensions.monitoring import error_log

_MODULES = (
    "verl.trainer.main_ppo",
    "verl.workers.engine_workers",
    "verl.experimental.reward_loop",
    "verl_agentic.verl.extensions.server.rollout_server",
    "transformers.models.qwen2.modeling_qwen2",
)
_READ_AT_START = ("PYTHONPATH", "RAY_JOB_ID", "RAY_RAYLET_PID")
"""Variables that a process reads only once. A worker in which one differs cannot be forked."""


def serve(listener: socket.socket) -> None:
    """Forks workers until the raylet ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for workers
    for name in _MODULES:
        importlib.import_module(name)
    raylet = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(raylet, selectors.EVENT_READ)
        while not any(key.fd == raylet for key, _ in ready.select()):
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become_worker(connection)
            connection.close()


def _become_worker(connection: socket.socket) -> None:
    """Runs Ray's script for workers with the arguments, environment and files of a stub."""
    with connection:
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile("rb") as stream:
            request = json.load(stream)
        context, script, arguments = _parse_arguments(request["arguments"])
        before = [os.environ.get(name) for name in _READ_AT_START]
        # Not replaced: modules have set variables when they were imported.
        os.environ.update(request["environment"])
        utils.update_envs(context.env_vars)
        is_same = before == [os.environ.get(name) for name in _READ_AT_START]
        is_plain = context.py_executable == sys.executable and not context.command_prefix
        if not is_same or not is_plain or context.override_worker_entrypoint:
            connection.sendall(b"0")
            os._exit(0)
        # The raylet ends the process group of a worker that has ended; others must not be in it.
        os.setpgid(0, 0)
        connection.sendall(b"1")
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked_signals"])
    numpy.random.seed()
    error_log.begin_worker()
    _limit_threads()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
    sys.exit()


def _parse_arguments(arguments: list[str]) -> tuple[RuntimeEnvContext, str, list[str]]:
    """Returns what Ray's `setup_worker.py` reads from its arguments: context, script and arguments of the worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language")
    options, rest = parser.parse_known_args(arguments)
    return RuntimeEnvContext.deserialize(options.serialized_runtime_env_context or "{}"), rest[0], rest[1:]


def _limit_threads() -> None:
    """Makes torch follow OMP_NUM_THREADS, which Ray sets later, when the worker gets its actor."""
    set_variable = utils.set_omp_num_threads_if_unset

    def set_threads() -> bool:
        is_set = set_variable()
        if is_set:
            torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        return is_set

    utils.set_omp_num_threads_if_unset = set_threads


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
