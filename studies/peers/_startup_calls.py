"""Counts the calls of actors in a run of one process, for `startup.py`. verl imports it in each process of the run."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from verl_agentic.verl.extensions.cpu.threads.thread_actors import ThreadActor

_calls: Counter[str] = Counter()
_call = ThreadActor.call


def _count(self: ThreadActor, method: str, *args: Any, **kwargs: Any) -> Any:
    _calls[f"{self.cls.__name__}.{method}"] += 1
    return _call(self, method, *args, **kwargs)


def _write() -> None:
    if _calls:
        Path(os.environ["STARTUP_CALLS"]).write_text(json.dumps(_calls))


ThreadActor.call = _count
atexit.register(_write)
