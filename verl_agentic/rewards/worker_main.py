"""The child process for components that could hang: `python -m verl_agentic.rewards.worker_main FD`.

Receives `(use, options, subject)`, answers `(verdict, None)` or `(None, error)`, and ends with its parent.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from verl_agentic.base.parent_process import end_with_parent


def main(descriptor: int) -> None:
    """Serves until the parent has ended."""
    from verl_agentic.base.places.error_places import describe_cause
    from verl_agentic.rewards.component import Component, load_component

    # The requesting thread or process may end while a component hangs here.
    end_with_parent(os.getppid())
    sys.path[:] = os.environ.pop("VERL_AGENTIC_WORKER_PATH").split(os.pathsep)
    components: dict[str, Component] = {}
    with Connection(descriptor) as parent:
        parent.send(("ready", None))
        while True:
            try:
                key, use, options, subject = parent.recv()
            except EOFError:
                return
            try:
                if key not in components:
                    components[key] = load_component(use).make(options)
                reply: tuple[Any, str | None] = (components[key](subject), None)
            except (Exception, SystemExit) as cause:
                reply = (None, describe_cause(cause))
            parent.send(reply)


if __name__ == "__main__":
    main(int(sys.argv[1]))
