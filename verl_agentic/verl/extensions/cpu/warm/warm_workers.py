"""Patches Ray: the workers of a run are forked from one process that has imported verl.

A run starts about ten workers. Each one imports Ray, torch, transformers and verl, which takes five CPU seconds: on a
few cores, most of the start. `Node.start_raylet` is patched in the driver: the raylet starts `worker_stub.py` instead
of Ray's `setup_worker.py`. The stub sends its arguments, environment and files to the warm process, which forks the
worker. A worker that needs another interpreter or other import paths is started as Ray does.

`VERL_AGENTIC_WARM_WORKERS=0` turns warm workers off. Only Linux has them: other systems cannot fork safely.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from ray._private.node import Node
from ray._private.ray_constants import PROCESS_TYPE_RAYLET

from verl_agentic.verl.extensions.cpu.platform import is_chosen
from verl_agentic.verl.patching import wrap

SWITCH = "VERL_AGENTIC_WARM_WORKERS"
"""Environment variable: `0` turns warm workers off. In workers it is the address of the warm process."""
_STUB = Path(__file__).with_name("worker_stub.py")


@wrap(Node, "start_raylet")
def start_raylet_with_warm_workers(start_raylet: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
    """Starts the raylet, then the warm process of its workers."""
    if not is_chosen() or sys.platform != "linux" or os.environ.get(SWITCH) == "0":
        return start_raylet(self, *args, **kwargs)
    os.environ[SWITCH] = address = os.path.join(self.get_sockets_dir_path(), "warm")
    # Workers that Ray starts before it knows the job cannot be forked.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    self._ray_params.setup_worker_path = str(_STUB)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen(64)  # stubs wait until the warm process accepts them
        start_raylet(self, *args, **kwargs)
        (raylet,) = self.all_processes[PROCESS_TYPE_RAYLET]
        # Ray reads these two when it is imported. The driver is the first job of a cluster.
        ray_variables = {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": str(raylet.process.pid)}
        subprocess.Popen(
            [sys.executable, "-m", "verl_agentic.verl.extensions.cpu.warm.warm_process", str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            env={**os.environ, **ray_variables, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
