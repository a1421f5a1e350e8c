"""Patches verl: where the log of a run has all metrics, the console shows about ten of them, one line a step.

Wraps `LocalLogger.log`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from verl.utils.logger.aggregate_logger import LocalLogger

from verl_agentic.verl.patching import wrap

_num_steps: ContextVar[int | None] = ContextVar("num_steps", default=None)
_SHOWN = (
    ("acc", "episode/acc", "{:.2f}"),
    ("reward", "critic/score/mean", "{:.2f}"),
    ("groups without signal", "batch/zero_signal_group_frac", "{:.0%}"),
    ("tokens", "response_length/mean", "{:.0f}"),
    ("turns", "episode/num_turns", "{:.1f}"),
    ("tool errors", "episode/tool_errors", "{:.1f}"),
    ("void", "episode/void", "{:.0%}"),
    ("entropy", "batch/entropy", "{:.2f}"),
    ("kl", "actor/ppo_kl", "{:.1e}"),
    ("gradient", "actor/grad_norm", "{:.2f}"),
    ("seconds", "timing_s/step", "{:.1f}"),
)
"""Label, metric and format."""


@contextlib.contextmanager
def short_console(*, num_steps: int) -> Iterator[None]:
    """Makes verl's console logger print short lines for the steps of a training."""
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
    elif self.print_to_console:
        print(line, flush=True)


def format_line(metrics: Mapping[str, Any], *, step: int, num_steps: int) -> str:
    """Returns the line of a step, or nothing if the metrics have none of the numbers that it shows."""
    parts = [
        f"{label} {shape.format(float(metrics[name]))}"  # the numbers of verl are of many types
        for label, name, shape in _SHOWN
        if name in metrics
    ]
    parts += [
        f"{name.removeprefix('val-core/')} {float(value):.2f}"
        for name, value in metrics.items()
        if name.startswith("val-core/")
    ]
    alarms = [name.removeprefix("health/") for name, value in metrics.items() if name.startswith("health/") and value]
    if alarms:
        parts.append(f"alarms: {', '.join(alarms)}")
    return " | ".join([f"step:{step} of {num_steps}", *parts]) if parts else ""
