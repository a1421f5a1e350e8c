"""Asks the warm process for a Ray worker. The raylet runs this script in place of Ray's `setup_worker.py`.

It imports the standard library alone: it runs once for each worker. If the warm process cannot make the worker, this
process becomes it, as Ray would have it.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Hands the arguments over, or runs Ray's own script."""
    arguments = sys.argv[1:]
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "blocked_signals": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }
    try:
        with socket.socket(socket.AF_UNIX) as warm:
            warm.connect(os.environ["VERL_AGENTIC_WARM_WORKERS"])
            socket.send_fds(warm, [b"0"], [0, 1, 2])
            warm.sendall(json.dumps(request).encode())
            warm.shutdown(socket.SHUT_WR)
            is_forked = warm.recv(1) == b"1"
    except OSError:
        is_forked = False
    if not is_forked:
        worker = next(argument for argument in arguments if argument.endswith("default_worker.py"))
        script = os.path.join(os.path.dirname(worker), "setup_worker.py")
        os.execv(sys.executable, [sys.executable, script, *arguments])


if __name__ == "__main__":
    main()
