"""Patches verl: where the log of a run has all metrics, the console shows about ten of them.

Wraps `LocalLogger.log`. The trainer prints a line for each step, or none if the driver shows the live view.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from verl.utils.logger.aggregate_logger import LocalLogger

from verl_agentic.observe.live.step_line import format_line
from verl_agentic.verl.extensions.monitoring.live_console import has_live_view
from verl_agentic.verl.patching import wrap

_num_steps: ContextVar[int | None] = ContextVar("num_steps", default=None)


@contextlib.contextmanager
def short_console(*, num_steps: int) -> Iterator[None]:
    """Makes verl's console logger print short lines for the steps of a training, or none with a live view."""
    token = _num_steps.set(num_steps)
    try:
        yield
    finally:
        _num_steps.reset(token)


@wrap(LocalLogger, "log")
def _print_line(log: Any, self: Any, data: Mapping[str, Any], step: int) -> None:
    num_steps = _num_steps.get()
    line = "" if num_steps is None else format_line(data, step=step, num_steps=num_steps)
    if not line:
        log(self, data, step)
    elif self.print_to_console and not has_live_view():
        print(line, flush=True)
